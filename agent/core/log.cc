#include "agent/core/log.h"

#include <unistd.h>

#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/core/str_cat.h"
#include "agent/core/utf8.h"

namespace msprobe::core {
namespace {

// 0 to 3, or the names that the server has, which reads the same variable; 1 where it says anything else.
int LowestShown() {
  const char* const given = std::getenv("MSPROBE_LOG_LEVEL");
  const std::string_view level = given == nullptr ? "" : given;
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};
  for (int i = 0; i < static_cast<int>(std::size(kNames)); ++i) {
    if (level == kNames[i]) return i;
  }
  return level.size() == 1 && level[0] >= '0' && level[0] <= '3' ? level[0] - '0' : 1;
}

}  // namespace

void Log::Write(Severity severity, std::string_view text) const {
  static constexpr std::string_view kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
  if (sink_) return sink_(severity, text);
  if (static_cast<int>(severity) < LowestShown()) return;
  const int64_t rank = rank_;
  const std::string line = Cat(absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::Now(), absl::LocalTimeZone()), " (",
                               getpid(), ") ", rank < 0 ? "" : Cat("[rank ", rank, "] "), "[",
                               kNames[static_cast<int>(severity)], "] ", Visible(text), "\n");
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, line.data(), line.size());
}

}  // namespace msprobe::core
