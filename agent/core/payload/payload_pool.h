#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "agent/core/mutex.h"
#include "agent/core/payload/mapped_memory.h"
#include "agent/core/payload/memory_budget.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/record.h"

namespace msprobe::core {

// Memory for payloads, which is used again. Fresh memory of this size would come from the kernel page by page, and the
// first touch of a page costs more than copying it.
//
// Sizes are rounded up to whole pages and to one of eight sizes between two powers of two; the budget is charged for
// the rounded size. Idle memory and the bytes that the budget has granted are together at most the budget's ceiling.
//
// Payloads are in the session's memory as long as that has room.
//
// Threads: any. Payloads share ownership of the pool.
class PayloadPool : public std::enable_shared_from_this<PayloadPool> {
 public:
  explicit PayloadPool(std::shared_ptr<MemoryBudget> budget,
                       std::shared_ptr<SessionMemory> memory = SessionMemory::Private())
      : budget_(std::move(budget)), memory_(std::move(memory)) {}

  // A payload of `size` bytes, which the budget must have granted. Its destructor releases them. Null: no memory.
  std::shared_ptr<Payload> Make(size_t size);

  // Smaller payloads are never shared: sending up to one HTTP/2 frame is cheaper than reading shared memory.
  static constexpr size_t kSmallestShared = size_t{16} << 10;

  size_t idle_bytes() const;

 private:
  class Pooled;

  void Return(MappedMemory memory);
  // Frees idle memory, the largest first, until `more` bytes fit below the ceiling.
  void MakeRoom(size_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<MemoryBudget> budget_;
  const std::shared_ptr<SessionMemory> memory_;

  mutable Mutex mu_;
  std::map<size_t, std::vector<MappedMemory>> idle_ ABSL_GUARDED_BY(mu_);  // by capacity
  size_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::core
