#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/format/storage/structure_summary.h"

namespace msprobe::server {

// The structures that were asked for last. One record needs those of its whole step, some hundreds, and finding and
// decoding each anew was two thirds of what a question for one record cost.
//
// 1. A structure never changes, and numbers of runs are not used again: what is here is right for ever.
// 2. Two generations: when the young one holds half of what may be kept it becomes the old one, and the old one goes;
//    what is found in the old one joins the young.
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
