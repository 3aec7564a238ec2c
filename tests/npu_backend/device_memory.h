#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace npu_backend {

// What tests ask the backend afterwards. All since the last Reset.
struct Counters {
  std::atomic<int64_t> allocations{0};             // of device memory
  std::atomic<int64_t> host_to_device{0};          // copies
  std::atomic<int64_t> device_to_host{0};          // copies that nobody waited for
  std::atomic<int64_t> waiting_device_to_host{0};  // copies that the caller waited for; each is a synchronization, too
  std::atomic<int64_t> synchronizations{0};        // of a stream, an event or the device, by any thread
  std::atomic<int64_t> kernels{0};

  static Counters& Get();
  void Reset();
};

// The device's memory: one file in memory, mapped twice. What programs see is the first mapping, which nobody may touch
// (a host that reads or writes there dies of SIGSEGV); kernels use the second.
//
// Memory given back is given out again to the stream that it was allocated on, at once: as on a real device, what is
// queued there before still finds its contents, since a stream works in order.
//
// Thread-safe.
class DeviceMemory {
 public:
  static DeviceMemory& Get();

  void* Allocate(size_t bytes, int64_t stream);  // null for 0 bytes; throws std::bad_alloc
  void Free(void* seen);
  // Where kernels find what programs see at `seen`.
  void* Alias(const void* seen) const;

 private:
  DeviceMemory();

  char* seen_ = nullptr;
  char* alias_ = nullptr;

  std::mutex mu_;
  size_t used_ = 0;
  std::map<void*, std::pair<size_t, int64_t>> live_;                     // bytes and stream
  std::map<std::pair<size_t, int64_t>, std::vector<void*>> given_back_;  // by bytes and stream
};

}  // namespace npu_backend
