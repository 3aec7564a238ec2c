#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "agent/core/session.h"

namespace msprobe::core {

// Prints lines to standard output in the form of mindstudio-probe, each with one write(2):
//   2026-11-21 01:53:55 (10736) [INFO] text
//   2026-11-21 01:53:55 (10736) [rank 3] [WARNING] text
// Control characters in a text are escaped, so that a line stays one line (Visible).
// MSPROBE_LOG_LEVEL hides lines with a lower severity: 0 debug, 1 info (the default), 2 warning, 3 error, or these
// names.
//
// Threads: any.
class Log {
 public:
  enum class Severity : uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };
  // Receives the lines instead: all severities, without time, process and rank.
  using Sink = std::function<void(Severity severity, std::string_view text)>;

  explicit Log(Sink sink = {}) : sink_(std::move(sink)) {}

  void SetRank(RankLabel rank) { rank_ = rank.is_rank ? static_cast<int64_t>(rank.number) : -1; }
  void Debug(std::string_view text) const { Write(Severity::kDebug, text); }
  void Info(std::string_view text) const { Write(Severity::kInfo, text); }
  void Warning(std::string_view text) const { Write(Severity::kWarning, text); }
  void Error(std::string_view text) const { Write(Severity::kError, text); }

 private:
  void Write(Severity severity, std::string_view text) const;

  const Sink sink_;
  std::atomic<int64_t> rank_{-1};
};

}  // namespace msprobe::core
