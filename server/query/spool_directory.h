#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace msprobe::server {

// A directory for a file in the making, gone with this object.
class SpoolDirectory {
 public:
  // Makes `parent` where it is missing. ResourceExhausted: it takes nothing; says why. `name`: begins the new one's.
  static absl::StatusOr<SpoolDirectory> Make(const std::string& parent, std::string_view name);

  SpoolDirectory(SpoolDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ~SpoolDirectory();
  const std::string& path() const { return path_; }

 private:
  explicit SpoolDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

// The content of a file in parts of at most 256 KiB. Stops at the first status that is not OK and gives it. Internal:
// the file cannot be read.
absl::Status ForEachPart(const std::string& path, absl::FunctionRef<absl::Status(std::string_view part)> visit);

}  // namespace msprobe::server
