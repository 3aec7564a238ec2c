#include "server/web/model_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <string>

#include "server/format/cat.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::Optional;
using Mark = ModelGraph::Mark;

std::string Tensor(std::string_view max, std::string_view min = "-1") {
  return Cat(R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": )", max, R"(, "Min": )", min,
             R"(, "Mean": 0.5, "Norm": 3})");
}
std::string Record(std::string_view name, const std::string& input, const std::string& output) {
  return Cat("\"", name, R"(": {"input_args": [)", input, R"(], "output": [)", output, "]}");
}

constexpr char kAdd[] = "Torch.add.0.forward", kLog[] = "Torch.log.0.forward", kMul[] = "Torch.mul.0.forward";
constexpr char kInner[] = "Module.a.b.B.forward.0", kOuter[] = "Module.a.A.forward.0";
constexpr char kConstruct[] = R"({"Module.a.A.forward.0": null, "Torch.add.0.forward": "Module.a.A.forward.0",
  "Module.a.b.B.forward.0": "Module.a.A.forward.0", "Torch.log.0.forward": "Module.a.b.B.forward.0",
  "Torch.mul.0.forward": "Module.a.A.forward.0"})";

class ModelGraphTest : public testing::Test {
 protected:
  // What add, log and mul gave as their maximum.
  std::unique_ptr<TableSource> Step(const std::string& add, const std::string& log, const std::string& mul) {
    const std::string path = directory_ / std::to_string(steps_++);
    std::ofstream(path + ".dump.json") << Cat(
        R"({"task": "statistics", "data": {)", Record(kAdd, Tensor("1"), Tensor(add, "-7")), ",",
        Record(kLog, Tensor(add), Tensor(log)), ",", Record(kInner, Tensor(add), Tensor(log)), ",",
        Record(kMul, Tensor(log), Tensor(mul)), ",", Record(kOuter, Tensor("1"), Tensor(mul)), "}}");
    std::ofstream(path + ".construct.json") << kConstruct;
    DumpFiles files;
    files.dump = path + ".dump.json";
    files.construct = path + ".construct.json";
    auto read = ReadDumpTable(files, {.stacks = false, .construct = true, .calls = true});
    EXPECT_TRUE(read.ok()) << read.status();
    return *std::move(read);
  }
  static int32_t At(const ModelGraph& model, std::string_view name) {
    const int32_t node = model.graph().Find(name);
    EXPECT_GT(node, 0) << name;
    return node;
  }

  ScratchDirectory directory_;
  int steps_ = 0;
};

TEST_F(ModelGraphTest, ModulesTakeTheWorstOfWhatTheyHoldAndTheFirstIsMarked) {
  const auto step = Step("2", "NaN", "NaN");
  auto model = ModelGraph::Of(step->table());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->graph().node(model->first()).name, kLog);
  EXPECT_EQ(model->facts(At(*model, kLog)).level, OverflowLevel::kCritical);
  EXPECT_EQ(model->facts(At(*model, kMul)).level, OverflowLevel::kHigh);
  EXPECT_EQ(model->facts(At(*model, kInner)).level_inside, OverflowLevel::kCritical);
  EXPECT_EQ(model->facts(At(*model, kOuter)).inside, 4);
  EXPECT_EQ(model->MarkOf(At(*model, kAdd)), Mark::kFine);
  EXPECT_EQ(model->MarkOf(At(*model, kLog)), Mark::kFirst);
  EXPECT_EQ(model->MarkOf(At(*model, kMul)), Mark::kBad);
  EXPECT_TRUE(model->OnPath(At(*model, kInner), At(*model, kMul)));
  EXPECT_FALSE(model->OnPath(At(*model, kAdd), At(*model, kInner)));
}

TEST_F(ModelGraphTest, AValueIsTheOutputFarthestFromZero) {
  const auto step = Step("2", "4", "NaN");
  auto model = ModelGraph::Of(step->table());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->ValueOf(At(*model, kAdd), Statistic::kMax), Optional(2.0F));
  EXPECT_THAT(model->ValueOf(At(*model, kAdd), Statistic::kMin), Optional(-7.0F));
  EXPECT_TRUE(std::isnan(*model->ValueOf(At(*model, kMul), Statistic::kMax)));
  EXPECT_EQ(model->ValueOf(0, Statistic::kMax), std::nullopt) << "the root is no record";
  EXPECT_EQ(model->TensorOf(At(*model, kAdd)), ".output.0");
  EXPECT_THAT(model->RangeOf(Statistic::kMax), Optional(testing::Pair(2, 4)));
  EXPECT_EQ(model->RangeOf(Statistic::kZero), std::nullopt);
}

TEST_F(ModelGraphTest, ComparedSidesHaveVerdictsPartnersAndAPath) {
  const auto target = Step("2", "5", "6"), golden = Step("2", "4", "4");
  auto ours = ModelGraph::Of(target->table()), theirs = ModelGraph::Of(golden->table());
  ASSERT_TRUE(ours.ok() && theirs.ok());
  auto comparison = CompareStep(*target, *golden, {});
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  ModelGraph::Compare(target->table(), *ours, golden->table(), *theirs, *comparison, 1, 1);
  for (const ModelGraph* model : {&*ours, &*theirs}) {
    EXPECT_EQ(model->graph().node(model->first()).name, kLog);
    EXPECT_THAT(model->facts(At(*model, kAdd)).verdict, Optional(Verdict::kEqual));
    EXPECT_THAT(model->facts(At(*model, kMul)).verdict, Optional(Verdict::kDiffers));
    EXPECT_THAT(model->facts(At(*model, kInner)).verdict_inside, Optional(Verdict::kDiffers));
    EXPECT_TRUE(model->OnPath(At(*model, kInner), At(*model, kMul)));
  }
  EXPECT_EQ(ours->facts(At(*ours, kMul)).partner, At(*theirs, kMul));
}

TEST_F(ModelGraphTest, PicturesAreKeptAndAFewOnly) {
  const auto step = Step("2", "4", "4");
  auto model = ModelGraph::Of(step->table());
  ASSERT_TRUE(model.ok());
  const auto closed = model->PictureOf({});
  EXPECT_EQ(closed->boxes().size(), 1);
  EXPECT_EQ(model->PictureOf({}), closed);
  EXPECT_EQ(model->PictureOf({At(*model, kOuter)})->boxes().size(), 4);
  for (int32_t other = 100; other < 110; ++other) model->PictureOf({other});
  EXPECT_NE(model->PictureOf({}), closed);
}

TEST_F(ModelGraphTest, AStepWithoutCallsIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(ModelGraph::Of(StepTable()).status()));
}

}  // namespace
}  // namespace msprobe::server
