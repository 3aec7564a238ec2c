#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/format/cat.h"
#include "server/format/storage/scripted_block.h"
#include "server/query/analysis_context.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/stored_pass.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kSteps = 100;
constexpr uint32_t kBroken = 61;       // has a NaN in layers.2
constexpr uint32_t kCallsALayer = 10;  // of RepeatedPass

class LayerMapTest : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.directory = directory_ / "data";
    store_ = *Store::Open(options);
    context_.store = store_.get();
    context_.layouts = &layouts_;
    Put("run", 1, RepeatedPass({.calls = 40, .seed = 1}));
    request_.run = "run";
    request_.rank.emplace().set_kind(v1::Rank::RANK);
    request_.tensors = "*.forward.output.0";
    request_.statistic = Statistic::kMax;
  }

  void Put(const std::string& name, uint32_t run, const RepeatedPass& pass) {
    ASSERT_TRUE(PutRun(*store_, name, pass).ok());
    for (uint32_t step = 0; step < kSteps; ++step) {
      std::vector<v1::Block> blocks = pass.Blocks(step, 0);
      const bool broken = run == 1 && step == kBroken;
      // The exit of the call: five numbers a leaf, two leaves a call.
      if (broken) blocks[0].set_narrow((2 * kCallsALayer * 2 + 1) * 5, std::nanf(""));
      const StepKey key{run, 0, step, 0};
      ASSERT_TRUE(PutBlocks(*store_, blocks, key).ok());
      if (!broken) continue;
      auto row = store_->database().Find<storage::StepRow>(key.Encode());
      (*row)->set_nan_tensors(1);
      ChangeSet changes;
      changes.PutMeta(key.Encode(), **row);
      ASSERT_TRUE(store_->database().Write(changes).ok());
    }
  }
  void Tile() { ASSERT_TRUE(Tiler(store_.get(), {.fewest_passes = 48}).RunOnce().ok()); }

  LayerMap Map() {
    auto map = MapLayers(
        context_, request_, [] { return false; }, [](size_t, size_t) { return true; });
    EXPECT_TRUE(map.ok()) << map.status();
    return map.ok() ? *map : LayerMap();
  }

  // {tensor: [value of each step]} by another way.
  std::map<std::string, std::vector<double>> Values(const std::string& run) {
    v1::TrendRequest request;
    request.mutable_source()->set_run(run);
    request.mutable_scope()->set_name_glob(request_.tensors);
    request.add_statistics(static_cast<v1::Statistic>(request_.statistic));
    std::map<std::string, std::vector<double>> values;
    EXPECT_TRUE(Trend(
                    context_, request, [] { return false; },
                    [&](const v1::TrendResponse& response) {
                      const v1::TrendSeries& series = response.series();
                      if (response.has_series()) values[series.name()] = {series.value().begin(), series.value().end()};
                      return true;
                    })
                    .ok());
    return values;
  }

  // Each known cell is one of the values that fall into it, and none of these is farther from 0.
  void ExpectFarthest(const LayerMap& map, const std::map<std::string, std::vector<double>>& values) {
    for (size_t row = 0; row < map.rows.size(); ++row) {
      for (size_t column = 0; column < map.columns.size(); ++column) {
        const LayerMap::Cell& cell = map.cells[row * map.columns.size() + column];
        ASSERT_TRUE(cell.known);
        EXPECT_FLOAT_EQ(cell.value, static_cast<float>(values.at(map.tensors[cell.tensor].name)[cell.step]));
        for (uint32_t step = map.columns[column].first; step <= map.columns[column].last; ++step) {
          const std::vector<double>& first = values.at("Torch.matmul.0.forward.output.0");
          if (map.rows[row].first == 0) {
            EXPECT_GE(std::abs(cell.value) + 1e-6, std::abs(first[step]));
          }
        }
      }
    }
  }

  ScratchDirectory directory_;
  std::unique_ptr<Store> store_;
  TableLayouts layouts_;
  AnalysisContext context_;
  LayerMapRequest request_;
};

TEST_F(LayerMapTest, ACellIsTheFarthestValueOfItsStepsAndNanGoesFirst) {
  request_.max_columns = 30;
  for (const bool tiled : {false, true}) {
    if (tiled) Tile();
    const LayerMap map = Map();
    EXPECT_THAT(map.layers, ElementsAre("layers.0", "layers.1", "layers.2", "layers.3"));
    EXPECT_EQ(map.rows.size(), 4u);
    EXPECT_EQ(map.columns.size(), 25u) << "four steps each";
    EXPECT_EQ(map.tensors.size(), 40u);
    EXPECT_EQ(map.tensors[0].record + ".output.0", map.tensors[0].name);
    EXPECT_EQ(map.steps_read, kSteps);
    const LayerMap::Cell& broken = map.cells[2 * map.columns.size() + kBroken / 4];
    EXPECT_TRUE(std::isnan(broken.value));
    EXPECT_EQ(broken.step, kBroken);
    EXPECT_EQ(map.tensors[broken.tensor].name, "Torch.matmul.5.forward.output.0");
    int nan = 0;
    for (const LayerMap::Cell& cell : map.cells) nan += std::isnan(cell.value) ? 1 : 0;
    EXPECT_EQ(nan, 1);
    LayerMap finite = map;
    finite.cells[2 * map.columns.size() + kBroken / 4] = finite.cells[0];
    ExpectFarthest(finite, Values("run"));
  }
}

TEST_F(LayerMapTest, MasksOfInfinityHaveNoValueAlsoInTiles) {
  v1::Structure mask = TensorStructure("Tensor.masked_fill", v1::RECORD_API, {"input_args", "output"});
  mask.mutable_fields()->mutable_dict()->mutable_entries(0)->mutable_value()->mutable_list()->add_items()->set_slot(
      v1::Node::FLOAT);
  const v1::Structure log = TensorStructure("Torch.log", v1::RECORD_API, {"input_args", "output"});
  const v1::Structure* const structures[] = {&mask, &log};
  std::vector<v1::Definition> definitions;
  for (const v1::Structure* const structure : structures) {
    definitions.emplace_back().set_structure(structure->SerializeAsString());
    definitions.back().set_id(IdOf(*structure));
  }
  ASSERT_TRUE(PutRun(*store_, "masks", definitions, "L1").ok());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (uint32_t step = 0; step < kSteps; ++step) {
    BlockScript script(step, 0);
    uint64_t ordinal = 0;
    for (const v1::Structure* const structure : structures) {
      script.Fragment(*structure, 0, ordinal, v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT,
                      {1, structure == &mask ? 2.f : 3.f});
      script.Parent(Cat("Module.net.layers.", ordinal++, ".Block.forward.0"));
      script.block().set_narrow(script.block().narrow_size() - 4, -kInfinity);  // the result's minimum
    }
    script.block().add_floats(-kInfinity);
    ASSERT_TRUE(PutBlocks(*store_, {script.block()}, {2, 0, step, 0}).ok());
  }
  request_.run = "masks";
  request_.statistic = Statistic::kMin;
  for (const bool tiled : {false, true}) {
    if (tiled) Tile();
    const LayerMap map = Map();
    ASSERT_THAT(map.layers, ElementsAre("net.layers.0", "net.layers.1"));
    for (size_t i = 0; i < kSteps; ++i) {
      EXPECT_FALSE(map.cells[i].known) << "the argument asked for it";
      EXPECT_EQ(map.cells[kSteps + i].value, -kInfinity) << "a logarithm of 0";
    }
  }
}

TEST_F(LayerMapTest, StepsAndLayersAreChosenAndPutTogether) {
  request_.first_step = 10;
  request_.last_step = 19;
  request_.first_layer = 1;
  request_.max_rows = 2;
  const LayerMap map = Map();
  EXPECT_EQ(map.layers.size(), 4u) << "all are named";
  ASSERT_EQ(map.rows.size(), 2u);
  EXPECT_EQ(map.rows[0].first, 1u);
  EXPECT_EQ(map.rows[0].last, 2u);
  EXPECT_EQ(map.rows[1].first, 3u);
  EXPECT_EQ(map.columns.front().first, 10u);
  EXPECT_EQ(map.columns.back().last, 19u);
}

TEST_F(LayerMapTest, ADifferenceIsOfTheSameTensorAndStep) {
  Put("other", 2, RepeatedPass({.calls = 40, .seed = 2}));
  request_.golden = "run";
  for (const LayerMap::Cell& cell : Map().cells) EXPECT_EQ(cell.value, 0) << "NaN on both sides, too";
  request_.golden = "other";
  const auto ours = Values("run"), theirs = Values("other");
  for (const bool tiled : {false, true}) {
    if (tiled) Tile();
    const LayerMap map = Map();
    ASSERT_EQ(map.cells.size(), 4 * kSteps);
    for (const LayerMap::Cell& cell : map.cells) {
      const std::string& name = map.tensors[cell.tensor].name;
      const double expected = ours.at(name)[cell.step] - theirs.at(name)[cell.step];
      ASSERT_EQ(std::isnan(expected), std::isnan(cell.value));
      if (std::isnan(expected)) continue;
      ASSERT_FLOAT_EQ(cell.value, static_cast<float>(expected));
    }
  }
}

TEST_F(LayerMapTest, OfTooManyStepsSomeAreReadAndThoseWithNanAreAmongThem) {
  request_.max_values = 40 * 9;
  const LayerMap map = Map();
  EXPECT_EQ(map.steps, kSteps);
  EXPECT_LE(map.steps_read, 12u);
  EXPECT_EQ(map.columns.front().first, 0u);
  EXPECT_EQ(map.columns.back().last, kSteps - 1);
  int nan = 0;
  for (const LayerMap::Cell& cell : map.cells) nan += std::isnan(cell.value) ? 1 : 0;
  EXPECT_EQ(nan, 1);
}

TEST_F(LayerMapTest, WhatIsNotThereIsNamed) {
  const auto ask = [this] {
    return MapLayers(
               context_, request_, [] { return false; }, [](size_t, size_t) { return true; })
        .status();
  };
  request_.run = "none";
  EXPECT_THAT(std::string(ask().message()), HasSubstr("none"));
  request_.run = "run";
  request_.rank->set_number(7);
  EXPECT_THAT(std::string(ask().message()), HasSubstr("rank0"));
  request_.rank->set_number(0);
  request_.tensors = "nothing is called so";
  EXPECT_TRUE(Map().rows.empty());
}

TEST_F(LayerMapTest, ItEndsWhenNobodyListens) {
  const auto status = MapLayers(
                          context_, request_, [] { return false; }, [](size_t, size_t) { return false; })
                          .status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

}  // namespace
}  // namespace msprobe::server
