#include "server/metrics/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "agent/core/utf8.h"

namespace msprobe::server {
namespace {

// The severity of syslog(3) for spdlog's level.
class Severity : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    constexpr std::array<std::string_view, 7> kPrefixes = {"<7>", "<7>", "<6>", "<4>", "<3>", "<2>", "<6>"};
    const std::string_view prefix = kPrefixes[static_cast<size_t>(message.level)];
    out.append(prefix.data(), prefix.data() + prefix.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<Severity>(); }
};

// The text of a line, made safe by Visible.
class Text : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = core::Visible(std::string_view(message.payload.data(), message.payload.size()));
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<Text>(); }
};

// systemd sets JOURNAL_STREAM=DEVICE:INODE; children inherit it, with other streams as stderr.
bool StderrIsJournal() {
  const char* const named = std::getenv("JOURNAL_STREAM");
  struct stat found {};
  if (named == nullptr || fstat(2, &found) != 0) return false;
  return std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino) == named;
}

}  // namespace

void StartLog(const std::string& level) {
  auto logger = spdlog::stderr_logger_mt("msprobe-server");
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<Severity>('*').add_flag<Text>('&');
  formatter->set_pattern(StderrIsJournal() ? "%*%&" : "%Y-%m-%d %H:%M:%S.%e [%l] %&");
  logger->set_formatter(std::move(formatter));
  spdlog::set_default_logger(logger);
  SetLogLevel(level);
}

void SetLogLevel(const std::string& level) { spdlog::set_level(spdlog::level::from_str(level)); }

}  // namespace msprobe::server
