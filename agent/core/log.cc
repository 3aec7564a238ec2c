#include "agent/core/log.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/core/str_cat.h"
#include "agent/core/utf8.h"

namespace msprobe::core {
namespace {

int LowestShown() {
  const char* level = std::getenv("MSPROBE_LOG_LEVEL");
  if (level == nullptr || level[0] < '0' || level[0] > '3' || level[1] != '\0') return 1;
  return level[0] - '0';
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
