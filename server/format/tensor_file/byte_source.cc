#include "server/format/tensor_file/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

absl::Status CheckRange(uint64_t offset, uint64_t count, uint64_t size) {
  if (offset <= size && count <= size - offset) return absl::OkStatus();
  return absl::OutOfRangeError(Cat("bytes ", offset, " to ", offset, "+", count, " of ", size));
}

}  // namespace

absl::Status MemoryBytes::ReadAt(uint64_t offset, std::span<char> out) {
  if (absl::Status status = CheckRange(offset, out.size(), content_.size()); !status.ok()) return status;
  if (!out.empty()) std::memcpy(out.data(), content_.data() + offset, out.size());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileBytes>> FileBytes::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, Cat("cannot open ", path));
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor);
    return absl::InvalidArgumentError(Cat(path, " is not a regular file"));
  }
  return std::unique_ptr<FileBytes>(new FileBytes(path, descriptor, static_cast<uint64_t>(status.st_size)));
}

FileBytes::~FileBytes() { close(descriptor_); }

absl::Status FileBytes::ReadAt(uint64_t offset, std::span<char> out) {
  if (absl::Status status = CheckRange(offset, out.size(), size_); !status.ok()) return status;
  while (!out.empty()) {
    const ssize_t count = pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, Cat("cannot read ", path_));
    if (count == 0) return absl::OutOfRangeError(Cat(path_, " became shorter while it was read"));
    offset += static_cast<uint64_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
