#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/synchronization/mutex.h"
#include "agent/core/record.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::capture {

// The numbers of contents by their checksum, for a step that runs twice: the checksum is made of every tensor at every
// call, and what is known by it needs no statistics again. A tensor passes several calls and modules, and in the second
// pass everything should be as in the first.
//
// Dense memory of one dtype, size and CRC-32 counts as one content if kSamples words spread over it are the same as
// well. A CRC-32 tells apart whatever differs in up to 32 neighbouring bits; of other contents that have these words in
// common it confuses one pair in four billion, which then have one checksum in the records too.
//
// Memory: at most kMost contents, some 20 MB; further ones are not kept. Thread-safe.
class KnownContents {
 public:
  static constexpr size_t kMost = 65'536;
  static constexpr size_t kSamples = 64;
  static constexpr size_t kSmallest = size_t{4} << 10;  // bytes; what is smaller is read in less time

  // What is seen of a content without reading it whole.
  struct Sight {
    uint64_t bytes = 0;
    uint64_t samples = 0;  // a hash of the words
    stats::DType dtype{};
    bool operator==(const Sight&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Sight& sight) {
      return H::combine(std::move(h), sight.bytes, sight.samples, sight.dtype);
    }
  };

  // Whether memory is of the kind that is kept: dense in any order of its dimensions, not small, and as it lies there.
  static bool Covers(const stats::TensorView& view);
  static Sight SightOf(const stats::TensorView& view);

  // False: no content that looks so is kept, so that the checksum need not be asked for first.
  bool MayKnow(const Sight& sight) const;
  // Sets the numbers of `leaf`, the checksum included. False: they are not known.
  bool Find(const Sight& sight, uint32_t crc32, core::Leaf& leaf) const;
  // leaf: with its checksum.
  void Keep(const Sight& sight, const core::Leaf& leaf);

 private:
  mutable absl::Mutex mu_;
  absl::flat_hash_map<Sight, absl::InlinedVector<core::Leaf, 1>> known_ ABSL_GUARDED_BY(mu_);
  size_t kept_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::capture
