#include "server/access/refusal_log.h"

#include <string>
#include <utility>

#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {

void RefusalLog::Note(std::string_view what, std::string_view who, std::string_view why) {
  uint64_t left_out = 0;
  {
    absl::MutexLock lock(&mu_);
    const absl::Time now = now_();
    if (now - minute_ >= absl::Minutes(1)) {
      minute_ = now;
      lines_ = 0;
    }
    if (lines_ == kLines) {
      ++left_out_;
      return;
    }
    ++lines_;
    left_out = std::exchange(left_out_, 0);
  }
  LogWarning("refused: {} of {}: {}{}", what, who, why,
             left_out == 0 ? std::string() : Cat(" (", left_out, " more were refused since the last line)"));
}

}  // namespace msprobe::server
