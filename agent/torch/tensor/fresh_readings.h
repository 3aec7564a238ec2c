#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/reading/remembered_statistics.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::capture {

// The checksums of host tensors that were read since torch last computed anything, for a step that runs twice. What one
// call gives, its module gives too, and the next module and the next call are given it: it is read once for all of
// them. Where an operator has run, everything is read again, so that memory which something has spoiled meanwhile is
// told from a wrong result.
//
// Rules:
// 1. Any operator forgets everything, on any thread and whatever it writes (at::RecordFunction). In a backward pass
//    torch's own nodes do not, as what they call does; nor do the views that they make, which touch no memory.
// 2. Python may write between two operators without one (numpy, DLPack). A tensor is read again unless its version and
//    kSamples words spread over its memory are the same.
// 3. Only memory of torch's own allocator counts that is dense, in any order of its dimensions. Others could write to
//    theirs.
// 4. Views that show the same bytes in the same order have one checksum.
// 5. A parameter counts once more, whatever has run: the checksum with which a call inside a module was given it is
//    what the module gives at its end.
//
// Thread-safe. As long as one of these lives, every operator of the process costs a call of some nanoseconds.
class FreshReadings {
 public:
  static constexpr size_t kSamples = 64;
  static constexpr size_t kSmallest = size_t{4} << 10;  // bytes; what is smaller is read in less time

  FreshReadings();
  ~FreshReadings();
  FreshReadings(const FreshReadings&) = delete;
  FreshReadings& operator=(const FreshReadings&) = delete;

  // The checksum of `view`, the memory of `tensor`, where it is known.
  std::optional<uint32_t> Recall(const at::Tensor& tensor, const stats::TensorView& view);
  // What was read just now.
  void Keep(const at::Tensor& tensor, const stats::TensorView& view, uint32_t checksum);

 private:
  struct Reading {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // so that memory which was freed meanwhile is another
    RememberedStatistics::Key key;                      // of the fewest dimensions
    uint64_t version = 0;
    uint64_t samples = 0;
    uint32_t checksum = 0;
  };
  using Readings = std::vector<Reading>;
  static constexpr size_t kMost = 32;

  static bool Covers(const at::Tensor& tensor, const stats::TensorView& view);
  // Takes out the reading of these bytes, if there is one, and gives it if it still holds.
  static std::optional<Reading> Take(Readings& readings, const RememberedStatistics::Key& key, const at::Tensor& tensor,
                                     const stats::TensorView& view);
  void ForgetOlder() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const at::CallbackHandle handle_;
  absl::Mutex mu_;
  uint64_t operators_ ABSL_GUARDED_BY(mu_) = 0;  // that had begun when readings_ were made
  Readings readings_ ABSL_GUARDED_BY(mu_);
  Readings parameters_ ABSL_GUARDED_BY(mu_);  // the latest, of modules that have not ended
};

}  // namespace msprobe::capture
