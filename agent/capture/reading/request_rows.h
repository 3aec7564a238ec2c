#pragma once

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agent/core/config/config.h"

namespace msprobe::capture {

// The token rows of one request in the batch of the present step (request_id with scheduled_tokens): of tensors whose
// first dimension holds all tokens of the batch, only these rows are read.
//
// Thread-safe.
class RequestRows {
 public:
  // The request has the rows [begin, end) of a batch of `total` tokens.
  void Select(int64_t total, int64_t begin, int64_t end) {
    absl::MutexLock lock(&mu_);
    rule_ = core::SliceRule{.dim = 0, .size = total, .begin = begin, .end = end};
  }
  void Clear() {
    absl::MutexLock lock(&mu_);
    rule_.reset();
  }
  std::optional<core::SliceRule> rule() const {
    absl::MutexLock lock(&mu_);
    return rule_;
  }

 private:
  mutable absl::Mutex mu_;
  std::optional<core::SliceRule> rule_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
