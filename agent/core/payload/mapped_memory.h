#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace msprobe::core {

class SharedFile;

// Owns whole pages from the kernel, either private to this process or in a SharedFile.
//
// The agent keeps its long-lived memory here and not on the program's heap. A small block of the agent's that outlives
// the tensors around it would keep malloc from joining the free memory, so the program's next tensors would need fresh
// memory (30 to 180 MiB on the model of docs/overhead.md).
//
// Threads: one at a time.
class MappedMemory {
 public:
  // If pages are larger (some aarch64 kernels), the rest of the last page belongs to the memory, too.
  static constexpr size_t kPage = 4096;

  MappedMemory() = default;
  // At least `size` bytes of private memory; empty: the kernel has none.
  static MappedMemory Allocate(size_t size);
  // The number of bytes that Allocate takes for `size`.
  static size_t Rounded(size_t size);

  MappedMemory(MappedMemory&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), size_(std::exchange(other.size_, 0)), file_(std::move(other.file_)) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(size_, other.size_);
    std::swap(file_, other.file_);
    return *this;
  }
  ~MappedMemory();

  std::byte* get() const { return at_; }
  size_t size() const { return size_; }
  bool empty() const { return at_ == nullptr; }
  // The offset in the shared file; nullopt: the memory is private.
  std::optional<uint64_t> shared_offset() const;

 private:
  friend class SharedFile;

  MappedMemory(std::byte* at, size_t size, std::shared_ptr<SharedFile> file)
      : at_(at), size_(size), file_(std::move(file)) {}

  std::byte* at_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<SharedFile> file_;
};

}  // namespace msprobe::core
