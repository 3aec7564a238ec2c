#include "agent/core/mapped_memory.h"

#include <sys/mman.h>

namespace msprobe::core {
namespace {

// Where pages are larger (some aarch64 kernels) the rest of the last one is taken and given back with it.
constexpr size_t kPage = 4096;

}  // namespace

size_t MappedMemory::Rounded(size_t size) { return (size + kPage - 1) / kPage * kPage; }

MappedMemory MappedMemory::Allocate(size_t size) {
  MappedMemory result;
  const size_t rounded = Rounded(size);
  void* const at = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return result;
  result.at_ = static_cast<std::byte*>(at);
  result.size_ = rounded;
  return result;
}

MappedMemory::~MappedMemory() {
  if (at_ != nullptr) munmap(at_, size_);
}

}  // namespace msprobe::core
