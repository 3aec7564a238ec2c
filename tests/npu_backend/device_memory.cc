#include "tests/npu_backend/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <stdexcept>

namespace npu_backend {
namespace {

constexpr size_t kBytes = size_t{4} << 30;  // of addresses; memory is taken where it is written to
constexpr size_t kGranule = 512;

void* Map(int file, int protection) {
  void* const mapping = mmap(nullptr, kBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (mapping == MAP_FAILED) throw std::runtime_error("npu_backend: cannot map the device's memory");
  return mapping;
}

}  // namespace

Counters& Counters::Get() {
  static Counters counters;
  return counters;
}

void Counters::Reset() {
  for (std::atomic<int64_t>* counter :
       {&allocations, &host_to_device, &device_to_host, &waiting_device_to_host, &synchronizations, &kernels}) {
    *counter = 0;
  }
}

DeviceMemory& DeviceMemory::Get() {
  static DeviceMemory* const memory = new DeviceMemory;
  return *memory;
}

DeviceMemory::DeviceMemory() {
  const int file = memfd_create("npu_backend", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kBytes)) != 0) {
    throw std::runtime_error("npu_backend: cannot make the device's memory");
  }
  seen_ = static_cast<char*>(Map(file, PROT_NONE));
  alias_ = static_cast<char*>(Map(file, PROT_READ | PROT_WRITE));
  close(file);
}

void* DeviceMemory::Allocate(size_t bytes, int64_t stream) {
  if (bytes == 0) return nullptr;
  ++Counters::Get().allocations;
  const size_t rounded = (bytes + kGranule - 1) / kGranule * kGranule;
  std::lock_guard lock(mu_);
  std::vector<void*>& reusable = given_back_[{rounded, stream}];
  void* seen = nullptr;
  if (!reusable.empty()) {
    seen = reusable.back();
    reusable.pop_back();
  } else {
    if (used_ + rounded > kBytes) throw std::bad_alloc();
    seen = seen_ + used_;
    used_ += rounded;
  }
  live_[seen] = {rounded, stream};
  return seen;
}

void DeviceMemory::Free(void* seen) {
  if (seen == nullptr) return;
  std::lock_guard lock(mu_);
  const auto found = live_.find(seen);
  given_back_[found->second].push_back(seen);
  live_.erase(found);
}

void* DeviceMemory::Alias(const void* seen) const {
  return seen == nullptr ? nullptr : alias_ + (static_cast<const char*>(seen) - seen_);
}

}  // namespace npu_backend
