#pragma once

#include <string>

#include "absl/status/status.h"

namespace msprobe::server {

// The file that says where an embedded server listens: {"address":...,"pid":...,"server_id":...}. It appears whole.
absl::Status WriteAdvertisement(const std::string& path, const std::string& address, const std::string& server_id);

// Removes it, unless it is another process's by now.
void RemoveAdvertisement(const std::string& path);

}  // namespace msprobe::server
