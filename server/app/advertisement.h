#pragma once

#include <string>

#include "absl/status/status.h"

namespace msprobe::server {

// Writes the file that says where an embedded server listens: {"address":...,"pid":...,"server_id":...}. The file
// appears whole.
absl::Status WriteAdvertisement(const std::string& path, const std::string& address, const std::string& server_id);

// Removes the file, unless another process has replaced it.
void RemoveAdvertisement(const std::string& path);

}  // namespace msprobe::server
