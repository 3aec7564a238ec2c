#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// The requests whose tokens the present step's forward passes hold (start(scheduled_tokens=...)), and which positions
// of them each pass has.
//
// Positions are read where the model was given them in host memory. On a device they would have to be waited for, so
// there they are counted from the first token of the request that was captured.
//
// Thread-safe.
class ServedBatch {
 public:
  using Request = std::pair<std::string, int64_t>;  // id, number of tokens, which stand one request after another

  void Set(std::vector<Request> requests);

  // Notes what pass `token` of `step` holds. positions: what the model was given, of as many elements as the batch has
  // tokens or more (padded), in the last dimension; null: they are counted.
  //
  // A pass of fewer is a microbatch, one of several that hold the batch together: its rows are told by where its
  // positions lie in the memory of the batch's, of which they are a view. Positions of another memory, or rows that
  // another microbatch of the step had, say nothing, and nothing is noted.
  void NotePass(core::Session& session, uint32_t step, uint32_t token, const at::Tensor* positions);

 private:
  struct Rows {
    int64_t begin = 0, end = 0;
  };
  // The rows of the batch that a pass with these positions has; absent: nobody knows.
  std::optional<Rows> RowsOf(const at::Tensor* positions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of a batch whose microbatches were counted: the next batch goes on behind them.
  void CountOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::vector<Request> requests_ ABSL_GUARDED_BY(mu_);
  int64_t total_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Rows> microbatches_ ABSL_GUARDED_BY(mu_);  // of the present batch
  // The next position of requests that are counted. Bounded: beyond kMaxCounted, those absent from the batch go.
  absl::flat_hash_map<std::string, uint64_t> next_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
