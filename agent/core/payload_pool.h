#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "agent/core/mapped_memory.h"
#include "agent/core/memory_budget.h"
#include "agent/core/mutex.h"
#include "agent/core/record.h"

namespace msprobe::core {

// Memory for payloads, used again: fresh memory of this size comes from the kernel page by page, and each page's first
// touch costs more than copying it.
//
// Sizes are rounded up to whole pages and one of eight steps an octave, which the budget is charged for as well. What
// lies idle here and what the budget has granted are together at most its ceiling.
//
// Threads: any. Payloads share the pool, so it lives as long as they.
class PayloadPool : public std::enable_shared_from_this<PayloadPool> {
 public:
  explicit PayloadPool(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

  // A payload of `size` bytes, which the budget has granted; its destruction releases them. Null: no memory.
  std::shared_ptr<Payload> Make(size_t size);

  size_t idle_bytes() const;

 private:
  class Pooled;

  void Return(MappedMemory memory);
  // Gives idle memory back until `more` bytes fit below the ceiling, the largest first.
  void MakeRoom(size_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<MemoryBudget> budget_;

  mutable Mutex mu_;
  std::map<size_t, std::vector<MappedMemory>> idle_ ABSL_GUARDED_BY(mu_);  // by capacity
  size_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::core
