#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/core/mapped_memory.h"
#include "agent/core/memory_budget.h"
#include "agent/core/mutex.h"
#include "agent/core/record.h"
#include "agent/core/shared_file.h"

namespace msprobe::core {

// Memory for payloads, used again: fresh memory of this size comes from the kernel page by page, and each page's first
// touch costs more than copying it.
//
// Sizes are rounded up to whole pages and one of eight steps an octave, which the budget is charged for as well. What
// lies idle here and what the budget has granted are together at most its ceiling.
//
// Once Share has been called, payloads of at least kSmallestShared lie in a SharedFile as far as that has room.
//
// Threads: any. Payloads share the pool, so it lives as long as they.
class PayloadPool : public std::enable_shared_from_this<PayloadPool> {
 public:
  explicit PayloadPool(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

  // A payload of `size` bytes, which the budget has granted; its destruction releases them. Null: no memory.
  std::shared_ptr<Payload> Make(size_t size);

  // Bytes up to one frame of HTTP/2 are sent for less than a server reads them from elsewhere.
  static constexpr size_t kSmallestShared = size_t{16} << 10;

  // The name of the file; empty: there is none, and there will be none. Later calls give the same.
  std::string Share(const std::string& directory = SharedFile::kDirectory) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the name away. Payloads stay.
  void EndSharing() ABSL_LOCKS_EXCLUDED(mu_);

  size_t idle_bytes() const;

 private:
  class Pooled;

  void Return(MappedMemory memory);
  MappedMemory Fresh(size_t capacity) ABSL_LOCKS_EXCLUDED(mu_);
  // Gives idle memory back until `more` bytes fit below the ceiling, the largest first.
  void MakeRoom(size_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<MemoryBudget> budget_;

  mutable Mutex mu_;
  std::map<size_t, std::vector<MappedMemory>> idle_ ABSL_GUARDED_BY(mu_);  // by capacity
  size_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool share_tried_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<SharedFile> file_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::core
