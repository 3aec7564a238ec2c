#include "server/metrics/log.h"

#include <spdlog/sinks/stdout_sinks.h>

namespace msprobe::server {

void StartLog(const std::string& level) {
  auto logger = spdlog::stderr_logger_mt("msprobe-server");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e [%l] %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(logger);
}

}  // namespace msprobe::server
