#pragma once

#include <cstddef>
#include <string>

namespace msprobe::server {

// Takes from everybody else what they may do with a data directory and with what a server has made in it: 0700 for
// directories, 0600 for files. A directory that holds anything else (a home, /tmp) stays as it is, and so does what
// belongs to others (the mount point of a volume); what the server made there is closed. Links are not followed. Gives
// how many were changed: 0, after one look, where the directory is closed already.
size_t CloseToOthers(const std::string& directory);

}  // namespace msprobe::server
