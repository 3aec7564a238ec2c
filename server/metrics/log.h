#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace msprobe::server {

// Puts every line on stderr as "2026-01-31 12:00:00.123 [info] text". Call once, before the first line.
// A line is one line, whatever is in it (Visible).
// Where stderr is the journal's (JOURNAL_STREAM), which stamps lines itself: "<6>text", the number being the severity.
void StartLog(const std::string& level);
// Any time.
void SetLogLevel(const std::string& level);

// Lines for operators: LogInfo("session {} opened", id).
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
