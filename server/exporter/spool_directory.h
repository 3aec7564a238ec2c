#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/exporter/file_sink.h"

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

// Gives a file to a sink under `name`. Internal: it cannot be read; otherwise the sink's errors.
absl::Status CopyFile(const std::string& path, std::string_view name, FileSink& sink);

}  // namespace msprobe::server
