#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace msprobe::server {

// Logs which caller was refused what, so that an operator finds a stranger or a job with a wrong token. However many
// calls are refused, the log gets at most kLines lines a minute; the next line says how many were left out.
// Threads: any.
class RefusalLog {
 public:
  static constexpr int kLines = 10;  // per minute

  explicit RefusalLog(std::function<absl::Time()> now = absl::Now) : now_(std::move(now)) {}

  // Logs "refused: WHAT of WHO: WHY".
  void Note(std::string_view what, std::string_view who, std::string_view why);

 private:
  const std::function<absl::Time()> now_;
  absl::Mutex mu_;
  absl::Time minute_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // when the current minute began
  int lines_ ABSL_GUARDED_BY(mu_) = 0;                             // logged in the current minute
  uint64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;                     // refusals since the last line
};

}  // namespace msprobe::server
