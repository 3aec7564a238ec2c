#include "server/shards/joined_run.h"

#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

shards::RunPart Part(uint32_t rank, uint64_t records, int64_t created, int64_t opened, const std::string& level) {
  shards::RunPart part;
  v1::RunSummary& summary = *part.mutable_summary();
  summary.set_run("job");
  summary.set_records(records);
  summary.set_created_unix_us(created);
  summary.mutable_settings()->set_level(level);
  summary.add_ranks()->set_number(rank);
  summary.mutable_ranks(0)->set_kind(v1::Rank::RANK);
  part.set_latest_opened_unix_us(opened);
  part.add_step_numbers(0);
  part.add_step_numbers(rank + 1);
  return part;
}

TEST(JoinedRun, CountsAreSummedAndSettingsAreTheLatest) {
  JoinedRun run;
  run.Add(Part(0, 10, 200, 500, "L0"));
  run.Add(Part(1, 20, 100, 900, "mix"));
  run.Add(Part(2, 30, 300, 700, "L1"));
  const auto sum = std::move(run).Sum({});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->run(), "job");
  EXPECT_EQ(sum->records(), 60u);
  EXPECT_EQ(sum->created_unix_us(), 100);
  EXPECT_EQ(sum->settings().level(), "mix");
  EXPECT_EQ(sum->ranks_size(), 3);
  EXPECT_EQ(sum->steps(), 4u) << "steps 0, 1, 2 and 3; step 0 is on all three servers";
}

}  // namespace
}  // namespace msprobe::server
