#include "server/importer/file_source.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "server/format/cat.h"

namespace msprobe::server {

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos) return false;
  while (true) {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (part.empty() || part == "." || part == "..") return false;
    if (end == path.size()) return true;
    path.remove_prefix(end + 1);
  }
}

absl::StatusOr<std::unique_ptr<DirectoryFiles>> DirectoryFiles::Open(std::string directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return absl::InvalidArgumentError(Cat(directory, " is not a directory"));
  }
  std::vector<std::string> paths;
  std::filesystem::recursive_directory_iterator it(directory, error), end;
  for (; !error && it != end; it.increment(error)) {
    if (it->is_symlink(error) || !it->is_regular_file(error)) continue;
    paths.push_back(it->path().lexically_relative(directory).generic_string());
  }
  if (error) return absl::ErrnoToStatus(error.value(), Cat("cannot list ", directory));
  std::sort(paths.begin(), paths.end());
  return std::unique_ptr<DirectoryFiles>(new DirectoryFiles(std::move(directory), std::move(paths)));
}

absl::StatusOr<std::unique_ptr<ByteSource>> DirectoryFiles::Open(std::string_view path) {
  if (!std::binary_search(paths_.begin(), paths_.end(), path)) {
    return absl::NotFoundError(Cat(directory_, " has no file ", path));
  }
  absl::StatusOr<std::unique_ptr<FileBytes>> file = FileBytes::Open(Cat(directory_, "/", path));
  if (!file.ok()) return file.status();
  return *std::move(file);
}

std::vector<std::string> MemoryFiles::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, content] : files_) paths.push_back(path);
  return paths;
}

absl::StatusOr<std::unique_ptr<ByteSource>> MemoryFiles::Open(std::string_view path) {
  auto it = files_.find(std::string(path));
  if (it == files_.end()) return absl::NotFoundError(Cat("no file ", path));
  return std::make_unique<MemoryBytes>(it->second);
}

}  // namespace msprobe::server
