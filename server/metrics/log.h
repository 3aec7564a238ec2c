#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace msprobe::server {

// Sends the log to stderr as "2026-01-31 12:00:00.123 [info] text". Call once, before the first line.
// Control characters in a text are escaped, so that a line stays one line (Visible).
// If stderr goes to the journal (JOURNAL_STREAM), which adds the time itself, a line is "<6>text" with the severity.
void StartLog(const std::string& level);
// May be called at any time.
void SetLogLevel(const std::string& level);

// For operators: LogInfo("session {} opened", id).
template <typename... Args>
void LogInfo(fmt::format_string<Args...> text, Args&&... args) {
  spdlog::info(text, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> text, Args&&... args) {
  spdlog::warn(text, std::forward<Args>(args)...);
}
template <typename... Args>
void LogError(fmt::format_string<Args...> text, Args&&... args) {
  spdlog::error(text, std::forward<Args>(args)...);
}

}  // namespace msprobe::server
