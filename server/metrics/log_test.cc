#include "server/metrics/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace msprobe::server {
namespace {

TEST(Log, ANameDoesNotMakeALine) {
  testing::internal::CaptureStderr();
  StartLog("info");
  LogInfo("run {} is here", "x\n2026-01-31 12:00:00.123 [error] the disk failed\x1b[2J");
  spdlog::default_logger()->flush();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("[info] run x\\n2026-01-31 12:00:00.123 [error] the disk failed\\x1b[2J is here\n"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace msprobe::server
