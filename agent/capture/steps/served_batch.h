#pragma once

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

// The positions that a model was given for one forward pass, as they lie in memory.
struct Positions {
  int64_t size = 0;  // of the last dimension
  // Where the first one lies in its memory, and how many that memory holds, in elements. Absent: they do not lie one
  // behind another.
  struct Place {
    int64_t begin = 0;
    int64_t capacity = 0;
  };
  std::optional<Place> place = std::nullopt;
  // Positions in host memory, of 64 or 32 bits, `stride` elements apart. Null: they cannot be read without waiting.
  const void* host = nullptr;
  int64_t stride = 1;
  bool is_wide = true;  // 64 bits
};

// The requests whose tokens the present step's forward passes hold (start(scheduled_tokens=...)), and which positions
// of each request a pass has.
//
// Positions are read where the model was given them in host memory. On a device they would have to be waited for, so
// there they are counted from the first token of the request that was captured.
//
// Thread-safe.
class ServedBatch {
 public:
  using Request = std::pair<std::string, int64_t>;  // id, number of tokens, which stand one request after another

  void Set(std::vector<Request> requests);

  // Notes what pass `token` of `step` holds. positions: what the model was given, one for each token of the batch or
  // more (padded); null: they are counted.
  //
  // A pass with fewer is a microbatch, one of several that hold the batch together. Its positions are a view of the
  // batch's, so their place in that memory tells its rows. Where the memory is another one, or where another microbatch
  // of the step had these rows, the rows are not known, and nothing is noted.
  void NotePass(core::Session& session, uint32_t step, uint32_t token, const Positions* positions);

 private:
  struct Rows {
    int64_t begin = 0, end = 0;
  };
  // The rows of the batch that a pass with these positions has. Absent: they are not known.
  std::optional<Rows> RowsOf(const Positions* positions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts the tokens of the batch's microbatches, so that the next batch goes on behind them.
  void CountOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::vector<Request> requests_ ABSL_GUARDED_BY(mu_);
  int64_t total_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Rows> microbatches_ ABSL_GUARDED_BY(mu_);  // of the present batch
  // The next position of each request that is counted. Bounded: beyond kMaxCounted, requests that are not in the batch
  // are forgotten.
  absl::flat_hash_map<std::string, uint64_t> next_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
