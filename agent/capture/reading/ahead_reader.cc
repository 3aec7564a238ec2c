#include "agent/capture/reading/ahead_reader.h"

#include <chrono>
#include <cstddef>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "agent/capture/reading/leaf_numbers.h"
#include "agent/core/background_thread.h"
#include "agent/stats/fleeting_memory.h"

namespace msprobe::capture {
namespace {

// Between two looks for an idle core.
constexpr std::chrono::milliseconds kLook{1};

}  // namespace

AheadReader::~AheadReader() {
  if (getpid() != owner_) {  // it is the parent's
    new (std::nothrow) std::thread(std::move(thread_));
    return;
  }
  Forget();
  if (thread_.joinable()) thread_.join();
}

void AheadReader::Read(core::PooledDeque<Tensor> tensors) {
  if (tensors.empty() || getpid() != owner_) return;
  const core::MutexLock lock(&mu_);
  waiting_ = std::move(tensors);
  goes_on_.store(true, std::memory_order_relaxed);
  if (runs_) return;
  if (thread_.joinable()) thread_.join();  // it has nothing more to do
  try {
    thread_ = core::StartBackgroundThread("msprobe-ahead", [this] { Run(); });
    runs_ = true;
  } catch (const std::system_error&) {  // there can be no more threads
    waiting_.clear();
  }
}

void AheadReader::Forget() {
  if (getpid() != owner_) return;
  const core::MutexLock lock(&mu_);
  waiting_.clear();
  goes_on_.store(false, std::memory_order_relaxed);
}

bool AheadReader::reads() const {
  const core::MutexLock lock(&mu_);
  return runs_;
}

bool AheadReader::AwaitIdleCore() const {
  while (goes_on_.load(std::memory_order_relaxed)) {
    if (load_.IdleCores() >= 0) return true;
    std::this_thread::sleep_for(kLook);
  }
  return false;
}

void AheadReader::Run() {
  const std::unique_ptr<std::byte[]> room(new (std::nothrow) std::byte[stats::FleetingMemory::kRoom]);
  int overtaken = 0;
  while (true) {
    std::optional<Tensor> next;
    {
      const core::MutexLock lock(&mu_);
      if (room == nullptr) waiting_.clear();
      if (waiting_.empty()) {
        runs_ = false;
        return;
      }
      if (overtaken < kOvertaken) {
        next = std::move(waiting_.front());
        waiting_.pop_front();
      } else {
        next = std::move(waiting_.back());
        waiting_.pop_back();
      }
    }
    if (!AwaitIdleCore()) continue;
    const stats::TensorView view{
        .data = next->data, .dtype = next->dtype, .sizes = next->sizes, .strides = next->strides};
    const bool was_first = remembered_.ReadAhead(
        next->ahead, view, {room.get(), stats::FleetingMemory::kRoom}, [this] { return AwaitIdleCore(); },
        [&](const stats::TensorView& copied, core::Leaf& numbers) {
          numbers.is_wide = next->is_wide;
          ReadNumbers(copied, next->mode, next->sizes.empty(), numbers);
        });
    if (!was_first) ++overtaken;
  }
}

}  // namespace msprobe::capture
