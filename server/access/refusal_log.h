#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace msprobe::server {

// Says in the log who was refused what, so that a stranger who knocks, or a job with a wrong token, is found; a
// thousand knocks are ten lines a minute, and a number. Threads: any.
class RefusalLog {
 public:
  static constexpr int kLines = 10;  // a minute

  explicit RefusalLog(std::function<absl::Time()> now = absl::Now) : now_(std::move(now)) {}

  // "refused: WHAT of WHO: WHY".
  void Note(std::string_view what, std::string_view who, std::string_view why);

 private:
  const std::function<absl::Time()> now_;
  absl::Mutex mu_;
  absl::Time minute_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // its beginning
  int lines_ ABSL_GUARDED_BY(mu_) = 0;                             // in it
  uint64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;                     // since the last line
};

}  // namespace msprobe::server
