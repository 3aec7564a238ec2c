#include "agent/capture/tensor_series.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/capture/recorder_fixture.h"

namespace msprobe::capture {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class TensorSeriesTest : public RecorderTest {
 protected:
  void OpenWith(core::Config config = {}) {
    Open(std::move(config));
    fake_.Set({.knows_edges = true, .knows_scalars = true});
  }

  void Read(std::string_view name, const Array& array) {
    recorder_->series().Read(name, [this, &array](const MemoryReader& memory) {
      return recorder_->source().Read(TensorRef{&array}, false, memory);
    });
  }

  // What the server has: step, the structure's name and that of the point, and the point's number or largest element.
  std::vector<std::pair<std::string, double>> Points() {
    std::vector<std::pair<std::string, double>> points;
    for (const ToldScalar& scalar : Scalars()) {
      points.emplace_back(core::Cat(scalar.step, " ", scalar.structure, " ", scalar.name), scalar.value);
    }
    return points;
  }

  Array weight_{.values = {1, -3, 2.5F}};
};

TEST_F(TensorSeriesTest, SendsWhatTensorsWereWhenTheyWereRead) {
  core::Config config;
  config.monitor.ops = {"max", "norm"};
  OpenWith(config);
  Read("weight", weight_);
  weight_.values = {7};
  recorder_->series().Add("ratio", 0.5);
  recorder_->series().Send(4);
  recorder_->series().Send(5);
  EXPECT_THAT(Points(), ElementsAre(Pair("4 max,norm weight", 2.5), Pair("4 max,norm ratio", 0.5)));
}

TEST_F(TensorSeriesTest, TheLaterReadingOfANameCounts) {
  OpenWith();
  Read("weight", weight_);
  recorder_->series().Add("other", 1);
  weight_.values = {9, 8};
  Read("weight", weight_);
  recorder_->series().Send(0);
  EXPECT_THAT(Points(),
              ElementsAre(Pair("0 min,max,mean,norm,nan other", 1), Pair("0 min,max,mean,norm,nan weight", 9)));
}

TEST_F(TensorSeriesTest, ManyTensorsAreSeveralFragments) {
  OpenWith();
  for (size_t i = 0; i < TensorSeries::kMostPoints + 1; ++i) Read(core::Cat("t", i), weight_);
  recorder_->series().Send(0);
  EXPECT_EQ(Points().size(), TensorSeries::kMostPoints + 1);
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

TEST_F(TensorSeriesTest, AnUpdateIsAShareOfWhatItChanges) {
  OpenWith();
  TensorSeries& series = recorder_->series();
  series.BeforeUpdate("a", {3, 4});
  series.BeforeUpdate("zero", {0, 0});
  series.AfterUpdate("a", "", std::vector<double>{3, 4.5});
  series.AfterUpdate("zero", "", std::vector<double>{1, 1});
  series.AfterUpdate("unknown", "", std::vector<double>{1});
  series.Send(2);
  EXPECT_THAT(Points(), ElementsAre(Pair("2 min,max,mean,norm,nan update_ratio/a", 0.1)));
}

TEST_F(TensorSeriesTest, AShardSaysWhatTheWholesRatioIsMadeOf) {
  OpenWith();
  TensorSeries& series = recorder_->series();
  series.BeforeUpdate("a", {3, 4});
  series.AfterUpdate("a", ".shard(2/4@0-1)", std::vector<double>{3, 5});
  series.Send(2);
  const std::string shard = "2 min,max,mean,norm,nan update_ratio/a.shard(2/4@0-1)";
  EXPECT_THAT(Points(), ElementsAre(Pair(shard + ":change", DoubleEq(std::sqrt(0.5))),
                                    Pair(shard + ":before", DoubleEq(std::sqrt(12.5)))));
}

TEST_F(TensorSeriesTest, HowElementsAreSpreadIsANumberBesideEachTensor) {
  core::Config config;
  config.monitor.ops = {"kurtosis", "underflow_fp16", "error_mxfp4", "to_zero_mxfp4"};
  OpenWith(config);
  weight_.values = {-1, 1, 0x1p-15F, 0};
  Read("weight", weight_);
  weight_.values = {2, 2};
  Read("constant", weight_);
  weight_.values = {8, 5, 0.25F, 0};  // by 2: 4, 2.5 (a tie), 0.125, 0
  Read("blocks", weight_);
  recorder_->series().Send(1);
  std::map<std::string, double> points;
  for (const auto& [name, value] : Points()) points[name] = value;
  EXPECT_NEAR(points.at("1 none weight:kurtosis"), 2, 1e-3);
  EXPECT_EQ(points.at("1 none weight:underflow_fp16"), 0.25);
  EXPECT_FALSE(points.contains("1 none constant:kurtosis")) << "it has none";
  EXPECT_EQ(points.at("1 none constant:underflow_fp16"), 0);
  EXPECT_EQ(points.at("1 none constant:error_mxfp4"), 0);
  EXPECT_NEAR(points.at("1 none blocks:error_mxfp4"), std::sqrt(1 + 0.0625) / std::sqrt(64 + 25 + 0.0625), 1e-6);
  EXPECT_EQ(points.at("1 none blocks:to_zero_mxfp4"), 0.25);
}

TEST_F(TensorSeriesTest, ATensorThatCannotBeReadIsAFault) {
  OpenWith();
  Array broken;
  broken.is_broken = true;
  Read("broken", broken);
  recorder_->series().Send(0);
  EXPECT_THAT(Points(), IsEmpty());
  EXPECT_EQ(session_->counters().faults, 1U);
}

}  // namespace
}  // namespace msprobe::capture
