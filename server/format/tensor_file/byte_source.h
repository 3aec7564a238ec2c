#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace msprobe::server {

// Bytes of known size that can be read at any offset. Threads: one at a time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  virtual uint64_t size() const = 0;
  // Fills `out` with the bytes from `offset` on. OutOfRange: the range goes beyond the end.
  virtual absl::Status ReadAt(uint64_t offset, std::span<char> out) = 0;
};

// Borrows `content`.
class MemoryBytes : public ByteSource {
 public:
  explicit MemoryBytes(std::string_view content) : content_(content) {}

  uint64_t size() const override { return content_.size(); }
  absl::Status ReadAt(uint64_t offset, std::span<char> out) override;

 private:
  const std::string_view content_;
};

// A regular file.
class FileBytes : public ByteSource {
 public:
  // Does not follow a symbolic link. Errors: the system's, with the name of the file.
  static absl::StatusOr<std::unique_ptr<FileBytes>> Open(const std::string& path);
  ~FileBytes() override;

  uint64_t size() const override { return size_; }
  absl::Status ReadAt(uint64_t offset, std::span<char> out) override;

 private:
  FileBytes(std::string path, int descriptor, uint64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

  const std::string path_;
  const int descriptor_;
  const uint64_t size_;
};

}  // namespace msprobe::server
