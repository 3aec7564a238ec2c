#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/analysis/compare/tiled_agreement.h"
#include "server/query/analysis_context.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/stored_pass.h"
#include "server/store/tiles/tiler.h"
#include "server/stored/stored_tiles.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kSteps = 60;
constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Fault = std::function<void(v1::Block&)>;

// Changes one value of a column, where the block has it.
template <typename Number, typename Change>
Fault At(google::protobuf::RepeatedField<Number>* (v1::Block::*column)(), int index, Change change) {
  return [=](v1::Block& block) {
    google::protobuf::RepeatedField<Number>& values = *(block.*column)();
    if (index < values.size()) values.Set(index, change(values.Get(index)));
  };
}

void LoseStatistics(v1::Block& block) {
  const int last = block.leaf_flags_size() - 1;
  const uint32_t flags = block.leaf_flags(last);
  if ((flags & v1::LEAF_STATISTICS) == 0 || (flags & (v1::LEAF_INTEGER | v1::LEAF_WIDE)) != 0) return;
  block.set_leaf_flags(last, flags & ~uint32_t{v1::LEAF_STATISTICS});
  block.mutable_narrow()->Truncate(block.narrow_size() - 5);
  block.mutable_zero_count()->RemoveLast();
  for (int i = block.non_finite_size(); i-- > 0;) {
    if (block.non_finite(i).leaf() == static_cast<uint32_t>(last)) block.mutable_non_finite()->DeleteSubrange(i, 1);
  }
}

void ChangeShape(v1::Block& block) {
  block.add_shapes()->add_dims(3);
  block.set_shape(3, static_cast<uint32_t>(block.shapes_size() - 1));
}

void MoveALittle(v1::Block& block) {
  for (float& number : *block.mutable_narrow()) number *= 1 + 5e-7F;
  for (uint32_t& flags : *block.mutable_leaf_flags()) flags &= ~uint32_t{v1::LEAF_CRC32};
  block.clear_crc32();
}

struct NamedFault {
  std::string name;
  Fault fault;
  bool surely_none = false;  // tiles alone tell that it is no difference
};

// What one side may say otherwise.
const std::vector<NamedFault>& Faults() {
  const auto other = [](float value) { return [value](float) { return value; }; };
  static const std::vector<NamedFault> faults = {
      {"nothing", [](v1::Block&) {}, true},
      {"all within the tolerance, no checksums", MoveALittle},
      {"a little within the tolerance", At(&v1::Block::mutable_narrow, 3, [](float x) { return x * (1 + 5e-7F); }),
       true},
      {"a checksum alone", At(&v1::Block::mutable_crc32, 0, [](uint32_t x) { return x ^ 1; })},
      {"another zero", At(&v1::Block::mutable_narrow, 2, other(-0.0F))},
      {"zero counts", At(&v1::Block::mutable_zero_count, 0, [](uint64_t x) { return x + 1; }), true},
      {"a maximum", At(&v1::Block::mutable_narrow, 0, [](float x) { return x * 1.01F; })},
      {"a minimum a little beyond", At(&v1::Block::mutable_narrow, 1, [](float x) { return x * (1 + 6e-6F); })},
      {"a mean", At(&v1::Block::mutable_narrow, 2, [](float x) { return x + 3; })},
      {"a norm", At(&v1::Block::mutable_narrow, 3, [](float x) { return x + 3; })},
      {"infinity on one side", At(&v1::Block::mutable_narrow, 0, other(kInfinite))},
      {"NaN on one side", At(&v1::Block::mutable_narrow, 1, other(kNan))},
      {"a double", At(&v1::Block::mutable_wide, 0, [](double x) { return x + 1e-6; })},
      {"a double that is infinite", At(&v1::Block::mutable_wide, 3, [](double) { return -double{kInfinite}; })},
      {"an integer", At(&v1::Block::mutable_integer_extremes, 0, [](int64_t x) { return x ^ 1; })},
      {"the mean of integers", At(&v1::Block::mutable_integer_moments, 0, [](double) { return 7.0; })},
      {"a scalar integer", At(&v1::Block::mutable_integers, 0, [](int64_t x) { return x ^ 1; })},
      {"a scalar float", At(&v1::Block::mutable_floats, 0, [](double) { return 0.5; })},
      {"a boolean", At(&v1::Block::mutable_booleans, 0, [](bool x) { return !x; })},
      {"a count", At(&v1::Block::mutable_count, 0, [](uint32_t x) { return x + 500; })},
      {"a shape", ChangeShape},
      {"no statistics", LoseStatistics},
  };
  return faults;
}

class FirstDivergenceQueryTest : public testing::Test {
 protected:
  void SetUp() override { SetUp("data"); }
  void SetUp(const std::string& name) {
    StoreOptions options;
    options.directory = directory_ / name;
    store_ = *Store::Open(options);
    context_.store = store_.get();
    context_.layouts = &layouts_;
  }
  // Two runs of the same passes; the fault of a step is in that of the target.
  void Put(const RepeatedPass& pass, uint32_t tokens = 1) {
    for (uint32_t run : {1u, 2u}) {
      ASSERT_TRUE(PutRun(*store_, run == 1 ? "golden" : "target", pass).ok());
      for (uint32_t step = 0; step < kSteps; ++step) {
        std::vector<v1::Block> blocks;
        for (uint32_t token = 0; token < tokens; ++token) {
          // Both sides are cut in other places.
          for (v1::Block& block : pass.Blocks(step, token, 100 + 7 * run)) blocks.push_back(std::move(block));
        }
        if (run == 2) FaultOf(step).fault(blocks.back());
        ASSERT_TRUE(PutBlocks(*store_, blocks, {run, 0, step, 0}).ok());
      }
    }
  }
  static const NamedFault& FaultOf(uint32_t step) { return Faults()[step % Faults().size()]; }
  void Tile() { ASSERT_TRUE(Tiler(store_.get(), {.fewest_passes = 2}).RunOnce().ok()); }

  // What the answer to one step is, as text; "" where the sides agree.
  std::string Ask(uint32_t step, v1::CompareMode mode = v1::COMPARE_BEST) {
    v1::FirstDivergenceRequest request;
    request.mutable_target()->set_run("target");
    request.mutable_golden()->set_run("golden");
    request.set_mode(mode);
    v1::Scope::Steps* steps = request.mutable_scope()->add_steps();
    steps->set_first(step);
    steps->set_last(step);
    return Answer(request);
  }
  std::string Answer(const v1::FirstDivergenceRequest& request) {
    std::string answer;
    absl::Status status = FirstDivergence(
        context_, request, [] { return false; },
        [&](const v1::FirstDivergenceResponse& response) {
          if (response.has_divergence()) answer += response.divergence().DebugString();
          return true;
        });
    EXPECT_TRUE(status.ok()) << status;
    return answer;
  }

  ScratchDirectory directory_;
  std::unique_ptr<Store> store_;
  TableLayouts layouts_;
  AnalysisContext context_;
};

TEST_F(FirstDivergenceQueryTest, TilesSayWhatRowsSaid) {
  Put(RepeatedPass({.calls = 40, .variety = true, .varying_shapes = true}));
  const std::vector<v1::CompareMode> modes = {v1::COMPARE_BEST, v1::COMPARE_STATISTICS, v1::COMPARE_CHECKSUM};
  std::vector<std::string> before;
  for (v1::CompareMode mode : modes) {
    for (uint32_t step = 0; step < kSteps; ++step) before.push_back(Ask(step, mode));
  }
  EXPECT_EQ(before[0], "");
  EXPECT_THAT(before[6], testing::HasSubstr("BLAME_"));
  Tile();
  size_t i = 0;
  for (v1::CompareMode mode : modes) {
    for (uint32_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(Ask(step, mode), before[i++]) << FaultOf(step).name << " in step " << step << ", mode " << mode;
    }
  }
}

TEST_F(FirstDivergenceQueryTest, StepsOfSeveralPassesAreToldFromTilesToo) {
  Put(RepeatedPass({.calls = 30, .variety = false}), 3);
  std::vector<std::string> before;
  v1::FirstDivergenceRequest all;
  all.mutable_target()->set_run("target");
  all.mutable_golden()->set_run("golden");
  const std::string first = Answer(all);
  EXPECT_THAT(first, testing::HasSubstr("token: 2"));
  Tile();
  EXPECT_EQ(Answer(all), first);
}

TEST_F(FirstDivergenceQueryTest, StepsThatAgreeAreSureByTheirTilesAlone) {
  for (const bool variety : {false, true}) {
    SetUp(variety ? "varied" : "plain");
    Put(RepeatedPass({.calls = 30, .variety = variety}), 2);
    Tile();
    std::vector<std::optional<TiledAgreement::Pair>> pairs;
    for (uint32_t step = 0; step < kSteps; ++step) {
      TileSource::Step sides[2];
      for (uint32_t run : {1u, 2u}) {
        const StepKey key{run, 0, step, 0};
        sides[run - 1] = {key, (*store_->database().Find<storage::StepRow>(key.Encode()))->next_block()};
      }
      pairs.push_back(TiledAgreement::Pair{sides[1], sides[0]});
    }
    pairs.push_back(std::nullopt);
    const CompareOptions options;
    const StoredTiles tiles(store_.get(), &layouts_);
    auto agreement = TiledAgreement::Make(tiles, pairs, options);
    ASSERT_TRUE(agreement.ok()) << agreement.status();
    for (uint32_t step = 0; step < kSteps; ++step) {
      const bool sure = (*agreement)->Agree(step);
      EXPECT_TRUE(sure || !FaultOf(step).surely_none) << FaultOf(step).name;
      EXPECT_TRUE(!sure || Ask(step).empty()) << FaultOf(step).name;
    }
    EXPECT_FALSE((*agreement)->Agree(kSteps)) << "a pair that is absent";
  }
}

}  // namespace
}  // namespace msprobe::server
