#include "server/analysis/series/layer_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/table/memory_table.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Steps of rank 0, in which each layer has one tensor.
class MemoryTables : public StepTables {
 public:
  explicit MemoryTables(std::string name) : name_(std::move(name)) {}

  // `values`: JSON of Max, by layer.
  void AddStep(uint32_t step, std::vector<std::string> values, bool non_finite = false) {
    places_.push_back({step, {v1::Rank::RANK, 0}});
    values_[step] = std::move(values);
    non_finite_[step] = non_finite;
  }

  void SetMin(std::string min) { min_ = std::move(min); }
  // An argument of every record.
  void SetArgument(std::string json) { argument_ = std::move(json); }

  const std::string& name() const override { return name_; }
  const std::vector<Place>& places() const override { return places_; }
  absl::StatusOr<std::unique_ptr<TableSource>> Read(const Place& place, const DumpReading&) const override {
    std::vector<std::pair<std::string, std::string>> entries;
    const std::vector<std::string>& values = values_.at(place.first);
    for (size_t layer = 0; layer < values.size(); ++layer) {
      const std::string number = std::to_string(layer);
      entries.emplace_back(
          "Module.layers." + number + ".Linear.forward.0",
          R"({"input_args": [)" + argument_ +
              R"(], "output": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": )" +
              values[layer] + R"(, "Min": )" + min_ + R"(, "Mean": 0.0, "Norm": 0.0, )" +
              R"("requires_grad": false}]})");
    }
    return std::make_unique<MemoryTable>(entries);
  }
  bool HasNonFinite(const Place& place) const override { return non_finite_.at(place.first); }
  std::optional<TileSource::Step> FindStored(const Place&) const override { return std::nullopt; }
  const TileSource* tiles() const override { return nullptr; }

 private:
  const std::string name_;
  std::string min_ = "0.0", argument_;
  std::vector<Place> places_;
  std::map<uint32_t, std::vector<std::string>> values_;
  std::map<uint32_t, bool> non_finite_;
};

class LayerMapTest : public testing::Test {
 protected:
  LayerMapTest() {
    question_.rank.emplace().set_kind(v1::Rank::RANK);
    question_.statistic = Statistic::kMax;
    question_.tensors = "*.output.0";
  }

  absl::StatusOr<LayerMap> Ask(const MemoryTables* golden = nullptr) {
    return MapLayers(
        target_, golden, question_, 2, [] { return false; }, [this](size_t, size_t) { return listening_; });
  }

  MemoryTables target_{"ours"};
  LayerMapQuestion question_;
  bool listening_ = true;
};

std::vector<float> Values(const LayerMap& map) {
  std::vector<float> values;
  for (const LayerMap::Cell& cell : map.cells) values.push_back(cell.value);
  return values;
}

TEST_F(LayerMapTest, ACellShowsTheValueFarthestFromZero) {
  target_.AddStep(0, {"1.0", "5.0"});
  target_.AddStep(1, {"-3.0", "4.0"});
  target_.AddStep(2, {"2.0", "6.0"});
  question_.max_columns = 2;
  const auto map = Ask();
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_THAT(map->layers, ElementsAre("layers.0", "layers.1"));
  EXPECT_THAT(Values(*map), ElementsAre(-3, 2, 5, 6));
  EXPECT_EQ(map->cells[0].step, 1u);
  EXPECT_EQ(map->tensors[map->cells[0].tensor].name, "Module.layers.0.Linear.forward.0.output.0");
}

TEST_F(LayerMapTest, MasksHaveNoValue) {
  target_.AddStep(0, {"1.0", "3.4028234663852886e38"});
  target_.SetMin("-3.4028234663852886e38");
  const auto map = Ask();
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_EQ(map->cells.size(), 2u);
  EXPECT_FALSE(map->cells[0].known);
  EXPECT_TRUE(map->cells[1].known) << "it is as large on either side of 0";
}

TEST_F(LayerMapTest, MasksOfInfinityHaveNoValue) {
  target_.AddStep(0, {"0.0", "3.0", "NaN"});
  target_.SetMin("-Infinity");
  target_.SetArgument(R"({"type": "float", "value": -Infinity})");
  const auto map = Ask();
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_EQ(map->cells.size(), 3u);
  EXPECT_FALSE(map->cells[0].known);
  EXPECT_FALSE(map->cells[1].known) << "what a mask was added to";
  EXPECT_TRUE(map->cells[2].known) << "NaN comes of no mask";
}

TEST_F(LayerMapTest, InfinityThatNoArgumentAskedForIsShown) {
  target_.AddStep(0, {"0.0"});
  target_.SetMin("-Infinity");
  target_.SetArgument(R"({"type": "float", "value": 2.0})");
  question_.statistic = Statistic::kMin;
  const auto map = Ask();
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->cells[0].value, -INFINITY);
}

TEST_F(LayerMapTest, NanGoesBeforeInfinityAndInfinityBeforeNumbers) {
  target_.AddStep(0, {"1e30", "1e30"});
  target_.AddStep(1, {"-Infinity", "1.0"});
  target_.AddStep(2, {"NaN", "-Infinity"});
  question_.max_columns = 1;
  const auto map = Ask();
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_TRUE(std::isnan(map->cells[0].value));
  EXPECT_EQ(map->cells[1].value, -INFINITY);
}

TEST_F(LayerMapTest, WithAGoldenSideItShowsDifferences) {
  target_.AddStep(0, {"1.0", "NaN"});
  target_.AddStep(7, {"1.0", "2.0"});
  MemoryTables golden("theirs");
  golden.AddStep(0, {"0.5", "NaN"});
  golden.AddStep(7, {"1.0", "5.0"});
  const auto map = Ask(&golden);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_THAT(Values(*map), ElementsAre(0.5, 0, 0, -3)) << "NaN on both sides is no difference";
}

TEST_F(LayerMapTest, WhereStepsAreLeftOutThoseWithNanStayIn) {
  for (uint32_t step = 0; step < 100; ++step) {
    const bool broken = step == 61;
    target_.AddStep(step, {broken ? "NaN" : "1.0"}, broken);
  }
  question_.max_values = 10;
  const auto map = Ask();
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->steps, 100u);
  EXPECT_LE(map->steps_read, 12u);
  EXPECT_EQ(map->columns.back().last, 99u);
  int nan = 0;
  for (float value : Values(*map)) nan += std::isnan(value) ? 1 : 0;
  EXPECT_EQ(nan, 1);
}

TEST_F(LayerMapTest, ErrorsSayWhatIsMissing) {
  target_.AddStep(0, {"1.0"});
  MemoryTables golden("theirs");
  golden.AddStep(0, {"1.0"});
  question_.rank->set_number(7);
  EXPECT_THAT(std::string(Ask().status().message()), HasSubstr("step 0 rank0"));
  question_.rank->set_number(0);
  question_.tensors.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(Ask().status()));
}

TEST_F(LayerMapTest, ItEndsWhenNobodyListens) {
  target_.AddStep(0, {"1.0"});
  listening_ = false;
  EXPECT_TRUE(absl::IsCancelled(Ask().status()));
}

}  // namespace
}  // namespace msprobe::server
