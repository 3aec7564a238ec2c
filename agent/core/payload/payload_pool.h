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

// Memory for payloads, used again: fresh memory of this size comes from the kernel page by page, and each page's first
// touch costs more than copying it.
//
// Sizes are rounded up to whole pages and one of eight steps an octave, which the budget is charged for as well. What
// lies idle here and what the budget has granted are together at most its ceiling.
//
// Payloads lie in the session's memory as far as that has room.
//
// Threads: any. Payloads share the pool, so it lives as long as they.
class PayloadPool : public std::enable_shared_from_this<PayloadPool> {
 public:
  explicit PayloadPool(std::shared_ptr<MemoryBudget> budget,
                       std::shared_ptr<SessionMemory> memory = SessionMemory::Private())
      : budget_(std::move(budget)), memory_(std::move(memory)) {}

  // A payload of `size` bytes, which the budget has granted; its destruction releases them. Null: no memory.
  std::shared_ptr<Payload> Make(size_t size);

  // Bytes up to one frame of HTTP/2 are sent for less than a server reads them from elsewhere.
  static constexpr size_t kSmallestShared = size_t{16} << 10;

  size_t idle_bytes() const;

 private:
  class Pooled;

  void Return(MappedMemory memory);
  // Gives idle memory back until `more` bytes fit below the ceiling, the largest first.
  void MakeRoom(size_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<MemoryBudget> budget_;
  const std::shared_ptr<SessionMemory> memory_;

  mutable Mutex mu_;
  std::map<size_t, std::vector<MappedMemory>> idle_ ABSL_GUARDED_BY(mu_);  // by capacity
  size_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::core
