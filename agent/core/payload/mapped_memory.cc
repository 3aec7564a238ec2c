#include "agent/core/payload/mapped_memory.h"

#include <sys/mman.h>

#include "agent/core/payload/shared_file.h"

namespace msprobe::core {

size_t MappedMemory::Rounded(size_t size) { return (size + kPage - 1) / kPage * kPage; }

MappedMemory MappedMemory::Allocate(size_t size) {
  const size_t rounded = Rounded(size);
  void* const at = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return {};
  return MappedMemory(static_cast<std::byte*>(at), rounded, nullptr);
}

MappedMemory::~MappedMemory() {
  if (at_ == nullptr) return;
  if (file_ != nullptr) {
    file_->Free(at_, size_);
  } else {
    munmap(at_, size_);
  }
}

std::optional<uint64_t> MappedMemory::shared_offset() const {
  if (file_ == nullptr) return std::nullopt;
  return file_->OffsetOf(at_);
}

}  // namespace msprobe::core
