#include "server/access/refusal_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>
#include <string>

#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

TEST(RefusalLog, SaysWhoAndWhyAndCountsTheRest) {
  std::ostringstream said;
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(said)));
  const auto lines = [&] {
    const std::string text = said.str();
    return std::count(text.begin(), text.end(), '\n');
  };
  absl::Time now = absl::FromUnixSeconds(1000);
  RefusalLog log([&now] { return now; });
  for (int i = 0; i < 1000; ++i) log.Note("/msprobe.v1.Query/ListRuns", "ipv4:10.0.0.9", "it does not know the token");
  EXPECT_EQ(lines(), RefusalLog::kLines);
  EXPECT_THAT(said.str(),
              HasSubstr("refused: /msprobe.v1.Query/ListRuns of ipv4:10.0.0.9: it does not know the token\n"));
  now += absl::Minutes(1);
  log.Note("/api/runs", "10.0.0.8", "no token");
  EXPECT_EQ(lines(), RefusalLog::kLines + 1);
  EXPECT_THAT(said.str(),
              HasSubstr("refused: /api/runs of 10.0.0.8: no token (990 more were refused since the last line)"));
}

}  // namespace
}  // namespace msprobe::server
