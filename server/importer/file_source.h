#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/format/tensor_file/byte_source.h"

namespace msprobe::server {

// The files of a dump. Paths are relative, '/' between parts. One thread at a time.
class FileSource {
 public:
  virtual ~FileSource() = default;

  // Sorted.
  virtual std::vector<std::string> paths() const = 0;
  // NotFound: no such path. The bytes must not outlive the source.
  virtual absl::StatusOr<std::unique_ptr<ByteSource>> Open(std::string_view path) = 0;
};

// A directory of this machine, such as the one to which an upload was spooled. Symbolic links are passed over.
class DirectoryFiles : public FileSource {
 public:
  // InvalidArgument: not a directory.
  static absl::StatusOr<std::unique_ptr<DirectoryFiles>> Open(std::string directory);

  std::vector<std::string> paths() const override { return paths_; }
  absl::StatusOr<std::unique_ptr<ByteSource>> Open(std::string_view path) override;

 private:
  DirectoryFiles(std::string directory, std::vector<std::string> paths)
      : directory_(std::move(directory)), paths_(std::move(paths)) {}

  const std::string directory_;
  const std::vector<std::string> paths_;
};

// Files that a test or a fuzzer makes up.
class MemoryFiles : public FileSource {
 public:
  void Add(const std::string& path, std::string content) { files_[path] = std::move(content); }

  std::vector<std::string> paths() const override;
  absl::StatusOr<std::unique_ptr<ByteSource>> Open(std::string_view path) override;

 private:
  absl::btree_map<std::string, std::string> files_;
};

// Whether a path that a peer names stays inside its directory: it is relative and not empty, no part of it is "", "."
// or
// "..", and it has no NUL.
bool IsSafePath(std::string_view path);

}  // namespace msprobe::server
