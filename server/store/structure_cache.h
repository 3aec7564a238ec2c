#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/format/storage/structure_summary.h"

namespace msprobe::server {

// The structures that were asked for last. A question for one record needs all structures of its step, some hundreds;
// without this cache, finding and decoding them was two thirds of its cost.
//
// 1. A structure never changes and a run's number is never used again, so an entry never becomes wrong.
// 2. There are two generations. When the young one has reached half of `max_bytes` it becomes the old one, and the
//    former old one goes. An entry that is found in the old generation moves to the young one.
// Threads: any.
class StructureCache {
 public:
  static constexpr size_t kMaxBytes = size_t{16} << 20;

  explicit StructureCache(size_t max_bytes = kMaxBytes) : max_bytes_(max_bytes) {}

  // Null: it is not here.
  SharedStructure Find(uint32_t run, uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);
  void Keep(uint32_t run, uint64_t id, SharedStructure structure) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Key = std::pair<uint32_t, uint64_t>;
  using Generation = absl::flat_hash_map<Key, SharedStructure>;

  void KeepYoung(const Key& key, SharedStructure structure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t max_bytes_;
  absl::Mutex mu_;
  Generation young_ ABSL_GUARDED_BY(mu_), old_ ABSL_GUARDED_BY(mu_);
  size_t young_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::server
