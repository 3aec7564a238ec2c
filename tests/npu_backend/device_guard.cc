#include "tests/npu_backend/device_guard.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include "tests/npu_backend/device_memory.h"

namespace npu_backend {
namespace {

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);

thread_local int64_t current_stream = 0;

// What a c10::Event points at: the signal of the last time it was recorded.
using EventState = std::shared_ptr<Signal>;

class DeviceGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return Named(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return Named(0); }
  c10::Stream getNewStream(c10::Device, int) const override { return NewStream(); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return NewStream(); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return Named(std::exchange(current_stream, stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override { return Stream::Get(stream.id()).idle(); }
  void synchronizeStream(const c10::Stream& stream) const override { Stream::Get(stream.id()).Synchronize(); }
  void synchronizeDevice(c10::DeviceIndex) const override {
    for (int64_t id = 0; id < Stream::kStreams; ++id) Stream::Get(id).Synchronize();
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new EventState;
    auto& state = *static_cast<EventState*>(*event);
    state = std::make_shared<Signal>();
    Stream::Get(stream.id()).Enqueue([signal = state] { signal->Set(); });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    Stream::Get(stream.id()).Enqueue([signal = *static_cast<EventState*>(event)] { signal->Wait(); });
  }
  bool queryEvent(void* event) const override { return event == nullptr || (*static_cast<EventState*>(event))->set(); }
  void synchronizeEvent(void* event) const override {
    ++Counters::Get().synchronizations;
    if (event != nullptr) (*static_cast<EventState*>(event))->Wait();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<EventState*>(event); }

 private:
  static c10::Stream Named(int64_t id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuard);

// Host memory that the device may copy to and from while the host does other things.
class PinnedAllocator final : public c10::Allocator {
 public:
  static PinnedAllocator& Get() {
    static PinnedAllocator* const allocator = new PinnedAllocator;
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = c10::alloc_cpu(std::max<size_t>(bytes, 1));
    std::lock_guard lock(mu_);
    live_.insert({memory, static_cast<char*>(memory) + bytes});
    return {memory, memory, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool Owns(const void* address) {
    std::lock_guard lock(mu_);
    const auto after = live_.upper_bound({address, reinterpret_cast<const void*>(UINTPTR_MAX)});
    return after != live_.begin() && address < std::prev(after)->second;
  }

 private:
  static void Free(void* memory) {
    PinnedAllocator& allocator = Get();
    {
      std::lock_guard lock(allocator.mu_);
      allocator.live_.erase(allocator.live_.lower_bound({memory, nullptr}));
    }
    c10::free_cpu(memory);
  }

  std::mutex mu_;
  std::set<std::pair<const void*, const void*>> live_;  // begin and end
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* address) const override { return PinnedAllocator::Get().Owns(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::Get(); }
};

[[maybe_unused]] const bool kRegistered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

Stream& CurrentStream() { return Stream::Get(current_stream); }
int64_t CurrentStreamId() { return current_stream; }

c10::Stream NewStream() {
  static std::atomic<int64_t> next{0};
  return c10::Stream(c10::Stream::UNSAFE, kDevice, 1 + next++ % (Stream::kStreams - 1));
}

}  // namespace npu_backend
