#include "server/exporter/monitor_trend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "server/exporter/trend_fixture.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;

constexpr char kValues[] =
    "SELECT rank, step, metric_name, target_name, micro_step, max FROM trend_data JOIN monitoring_targets USING "
    "(target_id) JOIN monitoring_metrics USING (metric_id) ORDER BY rank, step, target_id";

class MonitorTrendTest : public TrendFixture {
 protected:
  MonitorTrendTest() {
    for (const char* rank : {"0", "1"}) {
      const std::string into = directory_ + "/Nov26_02-58-18-rank" + rank + "-id";
      std::filesystem::create_directories(into);
      std::ofstream(into + "/actv_4-5.csv") << "vpp_stage,name,step,micro_step,max\n"
                                               "0,fc.output,4,0,1e12\n0,fc.output,4,1,2\n0,fc.output,5,0,3\n";
      std::ofstream(into + "/param_origin_4-5.csv") << "vpp_stage,name,step,max\n0,fc.weight,4,5\n0,fc.weight,5,6\n";
    }
  }

  absl::Status Write(const TrendOptions& options, uint32_t first_step = 0) {
    auto files = MonitorFiles::Find(directory_, {"norm", "max"});
    if (!files.ok()) return files.status();
    return WriteMonitorTrend(
        *files, path_, options, [&](uint32_t step, uint32_t rank) { return step >= first_step && rank == 1; },
        [](const std::string&) {});
  }
};

TEST_F(MonitorTrendTest, StepsAreThoseOfTheFiles) {
  ASSERT_TRUE(Write({}).ok());
  EXPECT_THAT(Rows(kValues), ElementsAre("1|4|actv|fc.output|0|1000000000000.0", "1|4|actv|fc.output|1|2.0",
                                         "1|4|param_origin|fc.weight|0|5.0", "1|5|actv|fc.output|0|3.0",
                                         "1|5|param_origin|fc.weight|0|6.0"));
  EXPECT_THAT(Rows("SELECT * FROM global_stats"), ElementsAre("1|4|5|max|max"));
}

TEST_F(MonitorTrendTest, MicroStepsCountFromZero) {
  ASSERT_TRUE(Write({.micro_steps = true, .renames = {{"fc", "up"}}}).ok());
  EXPECT_THAT(Rows(kValues), ElementsAre("1|0|actv|up.output|0|1000000000000.0", "1|0|param_origin|up.weight|0|5.0",
                                         "1|1|actv|up.output|0|2.0", "1|2|actv|up.output|0|3.0",
                                         "1|2|param_origin|up.weight|0|6.0"));
}

TEST_F(MonitorTrendTest, NothingOfTheStepsAskedForIsAnError) {
  EXPECT_TRUE(absl::IsInvalidArgument(Write({}, 9)));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace msprobe::server
