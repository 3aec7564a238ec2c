#include "agent/core/payload/payload_pool.h"

#include <bit>
#include <utility>

#include "agent/core/pool.h"

namespace msprobe::core {
namespace {

constexpr size_t kSmallest = 4096;

size_t Capacity(size_t size) {
  if (size <= kSmallest) return kSmallest;
  const size_t step = std::bit_floor(size - 1) / 8;
  return MappedMemory::Rounded((size + step - 1) / step * step);
}

}  // namespace

class PayloadPool::Pooled final : public Payload {
 public:
  Pooled(std::shared_ptr<PayloadPool> pool, MappedMemory memory, size_t size)
      : pool_(std::move(pool)), memory_(std::move(memory)), size_(size) {}
  ~Pooled() override { pool_->Return(std::move(memory_)); }
  std::span<std::byte> bytes() override { return {memory_.get(), size_}; }
  std::optional<uint64_t> shared_offset() const override { return memory_.shared_offset(); }

 private:
  const std::shared_ptr<PayloadPool> pool_;
  MappedMemory memory_;
  const size_t size_;
};

std::shared_ptr<Payload> PayloadPool::Make(size_t size) {
  const size_t capacity = Capacity(size);
  MappedMemory memory;
  {
    MutexLock lock(&mu_);
    const auto found = idle_.find(capacity);
    if (found != idle_.end() && !found->second.empty()) {
      memory = std::move(found->second.back());
      found->second.pop_back();
      idle_bytes_ -= capacity;
    } else {
      MakeRoom(capacity - size);
    }
  }
  if (memory.empty()) memory = memory_->Allocate(capacity, SharedFile::Use::kPayloads);
  if (memory.empty()) memory = MappedMemory::Allocate(capacity);
  if (memory.empty()) return nullptr;
  budget_->Charge(capacity - size);
  return MakePooled<Pooled>(shared_from_this(), std::move(memory), size);
}

void PayloadPool::Return(MappedMemory memory) {
  const size_t capacity = memory.size();
  budget_->Release(capacity);
  MutexLock lock(&mu_);
  MakeRoom(capacity);
  if (idle_bytes_ + capacity + budget_->used() > budget_->ceiling()) return;
  idle_[capacity].push_back(std::move(memory));
  idle_bytes_ += capacity;
}

void PayloadPool::MakeRoom(size_t more) {
  while (!idle_.empty() && idle_bytes_ + more + budget_->used() > budget_->ceiling()) {
    const auto largest = std::prev(idle_.end());
    if (!largest->second.empty()) {
      largest->second.pop_back();
      idle_bytes_ -= largest->first;
    }
    if (largest->second.empty()) idle_.erase(largest);
  }
}

size_t PayloadPool::idle_bytes() const {
  MutexLock lock(&mu_);
  return idle_bytes_;
}

}  // namespace msprobe::core
