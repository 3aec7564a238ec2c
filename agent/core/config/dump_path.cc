#include "agent/core/config/dump_path.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "agent/core/str_cat.h"
#include "agent/core/utf8.h"

namespace msprobe::core {
namespace {

constexpr size_t kLongestPath = 4096;
constexpr size_t kLongestName = 255;

absl::Status PathRefusal(std::string_view path, std::string_view why) {
  return absl::InvalidArgumentError(Cat("dump_path is invalid: \"", path, "\" ", why));
}

}  // namespace

absl::StatusOr<std::string> CheckDumpPath(std::string_view dump_path) {
  if (dump_path.empty()) return PathRefusal(dump_path, "is empty; it should be the path of a directory");
  if (dump_path.find('\0') != std::string_view::npos) return PathRefusal("", "holds a NUL character");
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(std::filesystem::path(dump_path), error);
  if (error) return PathRefusal(dump_path, Cat("has no absolute path: ", error.message()));
  path = path.lexically_normal();
  if (!path.has_filename() && path.has_parent_path() && path != path.root_path()) path = path.parent_path();
  if (!IsUtf8(path.native())) return PathRefusal(ToUtf8(path.native()), "is not UTF-8; it should be a path that is");
  if (path.native().size() > kLongestPath) return PathRefusal(dump_path, "is longer than 4096 bytes");
  for (const std::filesystem::path& name : path) {
    if (name.native().size() > kLongestName) return PathRefusal(dump_path, "has a name longer than 255 bytes");
  }
  std::filesystem::create_directories(path, error);
  if (error) {
    return PathRefusal(dump_path, Cat("cannot be created (", error.message(), "); it should be one that can be made"));
  }
  if (!std::filesystem::is_directory(path, error)) return PathRefusal(dump_path, "is not a directory");
  if (access(path.c_str(), W_OK | X_OK) != 0) return PathRefusal(dump_path, "is not writable");
  return path.string();
}

}  // namespace msprobe::core
