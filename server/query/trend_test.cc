#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/analysis/series/tiled_trend.h"
#include "server/query/analysis_context.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/stored_pass.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {
namespace {

class TrendTest : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.directory = directory_ / "data";
    store_ = *Store::Open(options);
    context_.store = store_.get();
    context_.layouts = &layouts_;
  }
  // Steps 0..count-1 of ranks 0 and 1.
  void Put(const RepeatedPass& pass, uint32_t count) {
    ASSERT_TRUE(PutRun(*store_, "run", pass).ok());
    for (uint32_t rank : {0u, 1u}) {
      for (uint32_t step = 0; step < count; ++step) {
        ASSERT_TRUE(PutStep(*store_, pass, {1, rank, step, 0}, 1 + step % 9).ok());
      }
    }
  }
  void Tile() { ASSERT_TRUE(Tiler(store_.get(), {.fewest_passes = 100}).RunOnce().ok()); }

  // All series, each as bytes; NaN and all.
  std::vector<std::string> Series(const v1::TrendRequest& request) {
    std::vector<std::string> series;
    absl::Status status = Trend(
        context_, request, [] { return false; },
        [&](const v1::TrendResponse& response) {
          if (response.has_series()) series.push_back(response.series().SerializeAsString());
          return true;
        });
    EXPECT_TRUE(status.ok()) << status;
    return series;
  }
  static v1::TrendRequest Request(const std::string& glob, const std::vector<int>& statistics = {}) {
    v1::TrendRequest request;
    request.mutable_source()->set_run("run");
    request.mutable_scope()->set_name_glob(glob);
    for (int statistic : statistics) request.add_statistics(static_cast<v1::Statistic>(statistic));
    return request;
  }
  size_t Rows() const {
    size_t count = 0;
    EXPECT_TRUE(store_->database()
                    .ForEach(Family::kRows, "",
                             [&](std::string_view, std::string_view) {
                               ++count;
                               return absl::OkStatus();
                             })
                    .ok());
    return count;
  }

  ScratchDirectory directory_;
  std::unique_ptr<Store> store_;
  TableLayouts layouts_;
  AnalysisContext context_;
};

TEST_F(TrendTest, TilesSayWhatRowsSaid) {
  Put(RepeatedPass({.calls = 40, .variety = true, .varying_shapes = true}), 60);
  const std::vector<v1::TrendRequest> requests = {Request("*.3.forward.*", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
                                                  Request("Torch.matmul.0.forward.output.0"), Request("*", {4, 7}),
                                                  Request("*no such tensor*"), Request("*.forward.input.n", {1, 2})};
  std::vector<std::vector<std::string>> before;
  for (const v1::TrendRequest& request : requests) before.push_back(Series(request));
  ASSERT_GT(before[0].size(), 10u);
  EXPECT_EQ(before[1].size(), 2u) << "one of each rank";
  ASSERT_GT(before[4].size(), 10u) << "arguments that are numbers";
  const size_t rows = Rows();
  Tile();
  ASSERT_LT(Rows(), rows);
  ASSERT_GT(Rows(), 0u) << "12 steps of each rank are left";
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(Series(requests[i]), before[i]) << i;
}

TEST_F(TrendTest, MoreTensorsThanATableHolds) {
  Put(RepeatedPass({.calls = static_cast<uint32_t>(TiledTrend::kMaxTensors)}), 48);
  const std::vector<std::string> before = Series(Request("*"));
  ASSERT_EQ(before.size(), 1000u) << "as many as are given, of 512 of each rank";
  Tile();
  ASSERT_EQ(Rows(), 0u);
  EXPECT_EQ(Series(Request("*")), before);
}

TEST_F(TrendTest, DeletedStepsAndOtherStepsOfASetAreNotShown) {
  Put(RepeatedPass({.calls = 8}), 48);
  Tile();
  ASSERT_EQ(Rows(), 0u);
  {
    absl::ReaderMutexLock tiling(&store_->steps().tiling_mutex());
    ChangeSet changes;
    ASSERT_TRUE(store_->steps().AddDeletion({1, 0, 5, 0}, changes).ok());
    ASSERT_TRUE(store_->database().Write(changes).ok());
  }
  v1::TrendRequest request = Request("Torch.matmul.0.forward.output.0");
  v1::Scope::Steps* steps = request.mutable_scope()->add_steps();
  steps->set_first(3);
  steps->set_last(7);
  v1::TrendSeries series;
  ASSERT_TRUE(series.ParseFromString(Series(request).at(0)));
  EXPECT_THAT(series.step(), testing::ElementsAre(3, 4, 6, 7));
}

TEST_F(TrendTest, AStepThatGoesOnBehindItsTilesIsReadWhole) {
  const RepeatedPass pass({.calls = 8});
  Put(pass, 48);
  Tile();
  const auto before = Series(Request("Torch.matmul.*.output.0"));
  // The same calls again under other counts, as the next block of step 7.
  v1::Block block = pass.Blocks(7, 0)[0];
  for (uint32_t& count : *block.mutable_count()) count += 100;
  ChangeSet changes;
  auto row = store_->database().Find<storage::StepRow>(StepKey{1, 0, 7, 0}.Encode());
  changes.Put(Family::kRows, RowKey{1, 0, 7, 0, 0, (*row)->next_block()}.Encode(), EncodeValue(block));
  (*row)->set_next_block((*row)->next_block() + 1);
  changes.PutMeta(StepKey{1, 0, 7, 0}.Encode(), **row);
  ASSERT_TRUE(store_->database().Write(changes).ok());
  const auto after = Series(Request("Torch.matmul.*.output.0"));
  EXPECT_EQ(after.size(), before.size() + 2) << "two calls more, on one rank";
}

}  // namespace
}  // namespace msprobe::server
