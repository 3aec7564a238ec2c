#pragma once

#include <cstddef>
#include <string>

namespace msprobe::server {

// Closes a data directory, and what a server has made in it, to all other users: directories become 0700, files 0600.
// A directory that holds other things as well (a home, /tmp) or belongs to another user (the mount point of a volume)
// stays as it is; what the server made there is still closed. Links are not followed. Returns how many were changed: 0,
// after one look, where the directory is closed already.
size_t CloseToOthers(const std::string& directory);

}  // namespace msprobe::server
