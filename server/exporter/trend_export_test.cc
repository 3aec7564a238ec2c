#include "server/exporter/trend_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/table/dump_reader.h"
#include "server/analysis/table/memory_table.h"
#include "server/exporter/trend_fixture.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

using Entries = std::vector<std::pair<std::string, std::string>>;

std::string Tensor(const std::string& max, const std::string& dtype = "torch.float32") {
  return Cat(R"({"type": "torch.Tensor", "dtype": ")", dtype, R"(", "shape": [2], "Max": )", max,
             R"(, "Min": -1.0, "Mean": 0.5, "Norm": 2.0, "requires_grad": true})");
}
std::string Outputs(const std::string& tensors) { return Cat(R"({"output": [)", tensors, "]}"); }

std::unique_ptr<MemoryTable> Step(const Entries& entries, const std::string& construct = "",
                                  const std::string& stacks = "") {
  auto step = std::make_unique<MemoryTable>(entries);
  DumpReader reader(&step->mutable_table());
  if (!stacks.empty()) {
    EXPECT_TRUE(reader.AddStacks(stacks).ok());
  }
  if (!construct.empty()) {
    EXPECT_TRUE(reader.AddCalls(construct).ok());
  }
  return step;
}

class TrendExportTest : public TrendFixture {};

TEST_F(TrendExportTest, HasFloatingTensorsByStepRankAndTarget) {
  TrendExport file(path_, {});
  const Entries entries = {
      {"Functional.linear.3.forward",
       Cat(R"({"input_args": [)", Tensor("7", "torch.int64"), ", ", Tensor("1e38"), R"(], "input_kwargs": {"b": )",
           Tensor("4.0"), R"(}, "output": [)", Tensor("Infinity"), "]}")},
      {"Module.fc.Linear.backward.0", Cat(R"({"input": [)", Tensor("NaN"), R"(], "output": []})")},
      {"Module.fc.Linear.parameters_grad", Cat(R"({"weight": [)", Tensor("3.0"), "]}")}};
  ASSERT_TRUE(file.Add(5, 0, Step(entries)->table()).ok());
  ASSERT_TRUE(file.Add(5, 2, Step({entries[2]})->table()).ok());
  ASSERT_TRUE(file.Finish().ok());
  EXPECT_THAT(Values(), ElementsAre("0|5|forward|Functional.linear.input.1|3|2.0|1.0e+38|-1.0|0.5",
                                    "0|5|forward|Functional.linear.input.b|3|2.0|4.0|-1.0|0.5",
                                    "0|5|forward|Functional.linear.output.0|3|2.0|1.0e+39|-1.0|0.5",
                                    "0|5|backward|Module.fc.Linear.input.0|0|2.0|-|-1.0|0.5",
                                    "0|5|parameters_grad|Module.fc.Linear.weight|0|2.0|3.0|-1.0|0.5",
                                    "2|5|parameters_grad|Module.fc.Linear.weight|0|2.0|3.0|-1.0|0.5"));
  EXPECT_THAT(Rows("SELECT * FROM global_stats"),
              ElementsAre("2|5|5|norm,max,min,mean|norm,max,min,mean|norm,max,min,mean|norm,max,min,mean"));
  EXPECT_THAT(Rows("SELECT tag_name, category FROM monitoring_tags JOIN tag_target_mapping USING (tag_id) "
                   "JOIN monitoring_targets USING (target_id) WHERE target_name = 'Functional.linear.input.b'"),
              ElementsAre("Functional.linear|function", "input.b|index"));
}

TEST_F(TrendExportTest, MicroStepsCountOnFromStepToStep) {
  TrendExport file(path_, {.micro_steps = true, .renames = {}});
  Entries entries;
  std::string construct;
  for (const char* call : {"0", "1"}) {
    for (const char* way : {"forward", "backward"}) {
      const std::string name = Cat("Module.net.Net.", way, ".", call);
      entries.emplace_back(
          name, Cat(way == std::string("forward") ? Outputs(Tensor("1.0"))
                                                  : Cat(R"({"input": [], "output": [)", Tensor("2.0"), "]}")));
      construct += Cat(construct.empty() ? "{" : ", ", "\"", name, "\": null");
    }
  }
  for (uint32_t step : {3, 7}) ASSERT_TRUE(file.Add(step, 0, Step(entries, construct + "}")->table()).ok());
  ASSERT_TRUE(file.Finish().ok());
  EXPECT_THAT(
      Rows("SELECT step, metric_id, target_name, micro_step FROM trend_data JOIN monitoring_targets USING "
           "(target_id) ORDER BY step, metric_id"),
      ElementsAre("0|1|Module.net.Net.output.0|0", "0|2|Module.net.Net.output.0|0", "1|1|Module.net.Net.output.0|0",
                  "1|2|Module.net.Net.output.0|0", "2|1|Module.net.Net.output.0|0", "2|2|Module.net.Net.output.0|0",
                  "3|1|Module.net.Net.output.0|0", "3|2|Module.net.Net.output.0|0"));
}

TEST_F(TrendExportTest, WhatCheckpointingComputesAgainIsAMetricOfItsOwn) {
  const Entries entries = {{"Module.a.A.forward.0", Outputs(Tensor("1.0"))},
                           {"Module.a.A.forward.1", Outputs(Tensor("2.0"))},
                           {"Module.a.A.backward.0", Cat(R"({"input": [], "output": [)", Tensor("3.0"), "]}")}};
  const std::string construct =
      R"({"Module.a.A.forward.0": null, "Module.a.A.forward.1": null, "Module.a.A.backward.0": null})";
  const std::string stacks =
      R"({"0": [["Module.a.A.forward.0"], ["File a.py, line 1, in step"]],
          "1": [["Module.a.A.forward.1"], ["File /torch/utils/checkpoint.py, line 1, in recompute_fn, \n f"]]})";
  for (const bool micro_steps : {true, false}) {
    TrendExport file(path_, {.micro_steps = micro_steps, .renames = {}});
    ASSERT_TRUE(file.Add(0, 0, Step(entries, construct, stacks)->table()).ok());
    ASSERT_TRUE(file.Finish().ok());
    EXPECT_THAT(Values(), UnorderedElementsAre(
                              "0|0|forward|Module.a.A.output.0|0|2.0|1.0|-1.0|0.5",
                              Cat("0|0|recompute|Module.a.A.output.0|", micro_steps ? "0" : "1", "|2.0|2.0|-1.0|0.5"),
                              "0|0|backward|Module.a.A.output.0|0|2.0|3.0|-1.0|0.5"));
  }
}

TEST_F(TrendExportTest, TextsInNamesAreReplaced) {
  TrendExport file(path_, {.micro_steps = false, .renames = {{"fc", "attention"}, {"attention.Linear", "a.L"}}});
  ASSERT_TRUE(file.Add(0, 0, Step({{"Module.fc.Linear.forward.0", Outputs(Tensor("1.0"))}})->table()).ok());
  ASSERT_TRUE(file.Finish().ok());
  EXPECT_THAT(Rows("SELECT target_name FROM monitoring_targets"), ElementsAre("Module.a.L.output.0"));
}

TEST_F(TrendExportTest, LeavesNothingWhereThereIsNoTrend) {
  {
    TrendExport file(path_, {});
    ASSERT_TRUE(file.Add(0, 0, Step({{"Torch.a.0.forward", Outputs(Tensor("1", "torch.int64"))}})->table()).ok());
    EXPECT_THAT(std::string(file.Finish().message()), HasSubstr("no tensor of a floating dtype"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

}  // namespace
}  // namespace msprobe::server
