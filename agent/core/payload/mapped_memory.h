#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace msprobe::core {

class SharedFile;

// Whole pages from the kernel, given back to it at destruction: of this process alone, or of a SharedFile.
//
// What the agent holds beside a program's own allocations goes here: a small block of ours on the program's heap, alive
// when the tensors around it die, keeps malloc from joining what they leave, and the program's next tensors need fresh
// memory (30 to 180 MiB on the model of docs/overhead.md).
//
// Threads: as a pointer.
class MappedMemory {
 public:
  MappedMemory() = default;
  // At least `size` bytes; empty where the kernel gives none.
  static MappedMemory Allocate(size_t size);
  // What Allocate takes for `size`.
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
  // Where it begins in the shared file; nothing: it is of this process alone.
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
