#include "server/exporter/vis_export.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/table/dump_reader.h"
#include "server/analysis/table/memory_table.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

std::string Tensor(const std::string& max, const std::string& norm) {
  return Cat(R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": )", max,
             R"(, "Min": -1.0, "Mean": 0.25, "Norm": )", norm, R"(, "requires_grad": true})");
}

// A linear layer between two operations of its own, and an API call at the top.
Entries StepOf(const std::string& output, const std::string& norm) {
  return {{"Functional.linear.0.forward", Cat(R"({"input_args": [)", Tensor("1.5", "2.0"),
                                              R"(, null], "input_kwargs": {"p": {"type": "float", "value": )",
                                              R"(0.5}}, "output": [)", Tensor(output, norm), "]}")},
          {"Module.fc.Linear.forward.0",
           Cat(R"({"input_args": [)", Tensor("1.5", "2.0"), R"(], "output": [)", Tensor(output, norm), "]}")},
          {"Torch.sum.0.forward", Cat(R"({"output": [)", Tensor("1.5", "2.0"), "]}")},
          {"Torch.relu.0.forward", Cat(R"({"output": [)", Tensor("1.5", "2.0"), "]}")}};
}

constexpr std::string_view kConstruct =
    R"({"Functional.linear.0.forward": "Module.fc.Linear.forward.0", "Module.fc.Linear.forward.0": null,
        "Torch.sum.0.forward": null, "Torch.relu.0.forward": null})";
constexpr std::string_view kStacks =
    R"({"0": [["Functional.linear.0.forward", "Torch.sum.0.forward"], ["File \"a\".py, line 1, in f, \n g"]]
})";

std::unique_ptr<MemoryTable> Step(const Entries& entries, std::string_view construct = kConstruct) {
  auto step = std::make_unique<MemoryTable>(entries);
  DumpReader reader(&step->mutable_table());
  EXPECT_TRUE(reader.AddStacks(kStacks).ok());
  EXPECT_TRUE(reader.AddCalls(construct).ok());
  return step;
}

class VisExportTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/vis-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/a.vis.db";
  }
  void TearDown() override {
    sqlite3_close(connection_);
    std::filesystem::remove_all(directory_);
  }

  absl::Status Export(VisOptions options, const TableSource* target, const TableSource* golden = nullptr) {
    auto file = VisExport::Begin(path_, std::move(options));
    if (!file.ok()) return file.status();
    absl::Status status =
        (*file)->Add({.step = 3, .rank = 1, .table = target}, {.step = 3, .rank = 1, .table = golden});
    return status.ok() ? (*file)->Finish() : status;
  }

  // Cells with '|' between them, rows with '\n'.
  std::string Ask(const std::string& sql) {
    if (connection_ == nullptr) {
      EXPECT_EQ(sqlite3_open(path_.c_str(), &connection_), SQLITE_OK);
    }
    std::string answer;
    const auto row = [](void* into, int count, char** cells, char**) {
      auto& text = *static_cast<std::string*>(into);
      if (!text.empty()) text += '\n';
      for (int i = 0; i < count; ++i) text += Cat(i == 0 ? "" : "|", cells[i] == nullptr ? "NULL" : cells[i]);
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(connection_, sql.c_str(), row, &answer, nullptr), SQLITE_OK) << sqlite3_errmsg(connection_);
    return answer;
  }

  std::string directory_;
  std::string path_;
  sqlite3* connection_ = nullptr;
};

TEST_F(VisExportTest, ShowsModulesAndWhatTheyCalled) {
  const auto step = Step(StepOf("2.5", "3.0"));
  ASSERT_TRUE(Export({}, step.get()).ok());
  EXPECT_EQ(
      Ask("SELECT id, node_order, node_type, up_node, sub_nodes, precision_index, matched_node_link FROM tb_nodes "
          "ORDER BY node_order"),
      "NPU_3_1_Functional.linear.0.forward|0|1|Module.fc.Linear.forward.0||NULL|[]\n"
      "NPU_3_1_Module.fc.Linear.forward.0|1|0|DefaultModel|[\"Functional.linear.0.forward\"]|NULL|[]\n"
      "NPU_3_1_Torch.sum.0.forward|2|1|Apis_Between_Modules.0||NULL|[]\n"
      "NPU_3_1_Torch.relu.0.forward|3|1|Apis_Between_Modules.0||NULL|[]\n"
      "NPU_3_1_Apis_Between_Modules.0|4|9|DefaultModel|[\"Torch.sum.0.forward\",\"Torch.relu.0.forward\"]|NULL|[]\n"
      "NPU_3_1_DefaultModel|5|0||[\"Module.fc.Linear.forward.0\",\"Apis_Between_Modules.0\"]|NULL|[]");
  EXPECT_EQ(
      Ask("SELECT graph_type, task, tool_tip, micro_steps, overflow_check, node_colors, rank_list, step_list FROM "
          "tb_config"),
      "build||NULL|1|0|null|[1]|[3]");
  EXPECT_EQ(Ask("PRAGMA journal_mode"), "wal");
}

TEST_F(VisExportTest, ShowsTheRowsOfANode) {
  const auto step = Step(StepOf("2.5", "3.0"));
  ASSERT_TRUE(Export({}, step.get()).ok());
  const std::string where = " FROM tb_nodes WHERE node_name = 'Functional.linear.0.forward'";
  EXPECT_EQ(Ask("SELECT input_data" + where),
            R"({"Functional.linear.0.forward.input.0":{"type":"torch.Tensor","dtype":"torch.float32","shape":"[2, 3]",)"
            R"("Max":"1.5","Min":"-1.0","Mean":"0.25","Norm":"2.0","requires_grad":"True","data_name":"-1"},)"
            R"("Functional.linear.0.forward.input.1":{"value":"null"},)"
            R"("Functional.linear.0.forward.input.p":{"type":"float","value":"0.5","data_name":"-1",)"
            R"("requires_grad":"null","Max":"0.5","Min":"0.5","Mean":"0.5","Norm":"0.5","dtype":"<class float>",)"
            R"("shape":"[]"}})");
  EXPECT_EQ(Ask("SELECT output_data" + where),
            R"({"Functional.linear.0.forward.output.0":{"type":"torch.Tensor","dtype":"torch.float32",)"
            R"("shape":"[2, 3]","Max":"2.5","Min":"-1.0","Mean":"0.25","Norm":"3.0","requires_grad":"True",)"
            R"("data_name":"-1"}})");
}

TEST_F(VisExportTest, KeepsAStackOnceAndGivesEveryNodeOne) {
  const auto step = Step(StepOf("2.5", "3.0"));
  const auto golden = Step(StepOf("2.5", "3.0"));
  ASSERT_TRUE(Export({}, step.get(), golden.get()).ok());
  EXPECT_EQ(Ask("SELECT count(*) FROM tb_stack"), "2");  // the one of two operations, and none
  EXPECT_EQ(Ask("SELECT count(*) FROM tb_nodes JOIN tb_stack ON stack_id = tb_stack.id"), "12");
  EXPECT_EQ(Ask("SELECT stack_info FROM tb_stack JOIN tb_nodes ON stack_id = tb_stack.id WHERE node_name = "
                "'Torch.sum.0.forward' AND data_source = 'Bench'"),
            R"(["File \"a\".py, line 1, in f, \n g"])");
}

TEST_F(VisExportTest, ComparesMatchedNodes) {
  const auto step = Step(StepOf("2.5", "6.0"));
  const auto golden = Step(StepOf("2.5", "3.0"));
  ASSERT_TRUE(Export({}, step.get(), golden.get()).ok());
  EXPECT_EQ(Ask("SELECT node_name, precision_index, matched_node_link FROM tb_nodes WHERE data_source = 'NPU' AND "
                "node_type < '9' ORDER BY node_order LIMIT 3"),
            "Functional.linear.0.forward|1|[\"DefaultModel\",\"Module.fc.Linear.forward.0\",\"Functional.linear.0."
            "forward\"]\n"
            "Module.fc.Linear.forward.0|1|[\"DefaultModel\",\"Module.fc.Linear.forward.0\"]\n"
            "Torch.sum.0.forward|0|[\"DefaultModel\",\"Apis_Between_Modules.0\",\"Torch.sum.0.forward\"]");
  EXPECT_EQ(Ask("SELECT precision_index FROM tb_nodes WHERE id = 'NPU_3_1_Apis_Between_Modules.0'"), "0");
  EXPECT_EQ(Ask("SELECT output_data FROM tb_nodes WHERE id = 'NPU_3_1_Functional.linear.0.forward'"),
            R"({"Functional.linear.0.forward.output.0":{"type":"torch.Tensor","dtype":"torch.float32",)"
            R"("shape":"[2, 3]","Max":"2.5","Min":"-1.0","Mean":"0.25","Norm":"6.0","requires_grad":"True",)"
            R"("data_name":"-1","Max diff":"0.0","Min diff":"0.0","Mean diff":"0.0","L2norm diff":"3.0",)"
            R"("MaxRelativeErr":"0.0%","MinRelativeErr":"0.0%","MeanRelativeErr":"0.0%","NormRelativeErr":"100.0%",)"
            R"("Requires_grad Consistent":"True","Result":"error",)"
            R"("Err_message":"[\"error: The NormRelativeErr of output is greater than 0.5.\", )"
            R"(\"warning: The norm relative error of output is 10 times that of input.\"]"}})");
  EXPECT_EQ(Ask("SELECT count(*) FROM tb_nodes WHERE data_source = 'Bench' AND precision_index IS NULL"), "6");
  EXPECT_EQ(Ask("SELECT graph_type, task FROM tb_config"), "compare|summary");
}

TEST_F(VisExportTest, MatchesModulesByAMapping) {
  const auto step = Step(StepOf("2.5", "6.0"));
  Entries other = StepOf("2.5", "3.0");
  other[1].first = "Module.proj.Linear.forward.0";
  const auto golden = Step(other, R"({"Functional.linear.0.forward": "Module.proj.Linear.forward.0",
                                      "Module.proj.Linear.forward.0": null})");
  VisOptions options;
  options.layers = {{"TopLayer", {{"fc", "proj"}}}};
  ASSERT_TRUE(Export(options, step.get(), golden.get()).ok());
  EXPECT_EQ(Ask("SELECT matched_node_link FROM tb_nodes WHERE data_source = 'NPU' AND node_order < 2"),
            "[\"DefaultModel\",\"Module.proj.Linear.forward.0\",\"Functional.linear.0.forward\"]\n"
            "[\"DefaultModel\",\"Module.proj.Linear.forward.0\"]");
  EXPECT_EQ(Ask("SELECT matched_node_link FROM tb_nodes WHERE id = 'Bench_3_1_Module.proj.Linear.forward.0'"),
            "[\"DefaultModel\",\"Module.fc.Linear.forward.0\"]");
}

TEST_F(VisExportTest, MatchesModulesOfTwoFrameworks) {
  const auto step = Step(StepOf("2.5", "6.0"));
  const auto golden = Step({{"Cell.fc.Dense.forward.0", "{}"}}, R"({"Cell.fc.Dense.forward.0": null})");
  golden->mutable_table().framework = "mindspore";
  ASSERT_TRUE(Export({}, step.get(), golden.get()).ok());
  EXPECT_EQ(Ask("SELECT matched_node_link FROM tb_nodes WHERE node_name = 'Module.fc.Linear.forward.0'"),
            "[\"DefaultModel\",\"Cell.fc.Dense.forward.0\"]");
}

TEST_F(VisExportTest, MarksWhereInfinityBegins) {
  const auto step = Step(StepOf("Infinity", "NaN"));
  const auto golden = Step(StepOf("2.5", "3.0"));
  ASSERT_TRUE(Export({.overflow = true, .fuzzy = false, .layers = {}, .layers_file = {}, .content = {}}, step.get(),
                     golden.get())
                  .ok());
  EXPECT_EQ(Ask("SELECT data_source, node_name, overflow_level FROM tb_nodes WHERE overflow_level IS NOT NULL"),
            "NPU|Functional.linear.0.forward|critical\nNPU|Module.fc.Linear.forward.0|high");
}

TEST_F(VisExportTest, RefusesAPairOfModulesNestedTooDeep) {
  const auto nested = [](size_t levels) {
    std::string construct = "{";
    for (size_t i = 0; i < levels; ++i) {
      construct += Cat(i == 0 ? "" : ", ", "\"Module.m", i,
                       ".M.forward.0\": ", i + 1 == levels ? "null" : Cat("\"Module.m", i + 1, ".M.forward.0\""));
    }
    return construct + "}";
  };
  const Entries entries = {{"Module.m0.M.forward.0", Cat(R"({"output": [)", Tensor("1.5", "2.0"), "]}")}};
  const auto deepest = Step(entries, nested(kMostLevels)), deeper = Step(entries, nested(kMostLevels + 1));
  EXPECT_TRUE(Export({}, &*deepest, &*deepest).ok());
  EXPECT_EQ(Export({}, &*deepest, &*deeper).message(),
            "the golden side: Module.m0.M.forward.0 lies in more than 499 other modules; a graph takes 500 levels");
  EXPECT_TRUE(Export({}, &*deeper).ok()) << "one side alone names no modules around its nodes";
}

TEST_F(VisExportTest, TellsWhatIsMissing) {
  MemoryTable step(StepOf("2.5", "3.0"));
  const absl::Status status = Export({}, &step);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.ToString().find("the target: "), std::string::npos) << status;
  directory_ += "/none";
  path_ = directory_ + "/a.vis.db";
  EXPECT_NE(VisExport::Begin(path_, {}).status().ToString().find(path_), std::string::npos);
}

}  // namespace
}  // namespace msprobe::server
