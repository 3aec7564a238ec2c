#include "server/exporter/spool_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr size_t kPartBytes = size_t{256} << 10;

}  // namespace

absl::StatusOr<SpoolDirectory> SpoolDirectory::Make(const std::string& parent, std::string_view name) {
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  std::string pattern = Cat(parent, "/", name, "-XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) {
    return absl::ResourceExhaustedError(Cat("cannot write to ", parent, ": ", std::generic_category().message(errno)));
  }
  return SpoolDirectory(std::move(pattern));
}

SpoolDirectory::~SpoolDirectory() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
}

absl::Status CopyFile(const std::string& path, std::string_view name, FileSink& sink) {
  std::ifstream file(path, std::ios::binary);
  if (absl::Status status = sink.Begin(name); !status.ok()) return status;
  std::string part;
  while (file) {
    part.resize(kPartBytes);
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    part.resize(static_cast<size_t>(file.gcount()));
    if (part.empty()) break;
    if (absl::Status status = sink.Write(part); !status.ok()) return status;
  }
  return file.eof() ? sink.End() : absl::InternalError(Cat(path, " cannot be read"));
}

}  // namespace msprobe::server
