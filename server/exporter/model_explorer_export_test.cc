#include "server/exporter/model_explorer_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "rapidjson/document.h"
#include "server/analysis/table/dump_reader.h"
#include "server/analysis/table/memory_table.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Outputs(const std::string& max) {
  return Cat(
      R"({"input_args": [null], "output": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": )",
      max, R"(, "Min": -1.0, "Mean": 0.25, "Norm": 2.0, "requires_grad": true}]})");
}

// Two calls inside a module, and `last` after it.
std::unique_ptr<MemoryTable> Step(const std::string& max, const std::string& last) {
  const std::vector<std::pair<std::string, std::string>> entries = {{"Torch.a.0.forward", Outputs("1.0")},
                                                                    {"Torch.b.0.forward", Outputs(max)},
                                                                    {"Module.fc.Linear.forward.0", Outputs(max)},
                                                                    {last, Outputs("5.0")}};
  auto step = std::make_unique<MemoryTable>(entries);
  DumpReader reader(&step->mutable_table());
  EXPECT_TRUE(
      reader
          .AddCalls(Cat(R"({"Torch.a.0.forward": "Module.fc.Linear.forward.0", "Torch.b.0.forward": )",
                        R"("Module.fc.Linear.forward.0", "Module.fc.Linear.forward.0": null, ")", last, R"(": null})"))
          .ok());
  return step;
}

class ModelExplorerExportTest : public testing::Test {
 protected:
  ModelExplorerExportTest() {
    std::string pattern = testing::TempDir() + "/explorer-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  ~ModelExplorerExportTest() override { std::filesystem::remove_all(directory_); }

  std::vector<std::string> Write(const MemoryTable& target, const MemoryTable* golden, VisOptions options = {}) {
    auto files = *ModelExplorerExport::Begin(directory_, std::move(options));
    for (uint32_t step : {0, 1}) {
      const absl::Status status =
          files->Add({.step = step, .rank = 3, .table = &target}, {.step = step, .rank = 3, .table = golden});
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(files->Finish().ok());
    return files->files();
  }

  std::string Text(const std::string& name) const {
    std::ifstream file(directory_ + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    rapidjson::Document document;
    EXPECT_FALSE(document.Parse(text.str().c_str()).HasParseError()) << name << ": " << text.str();
    return text.str();
  }

  std::string directory_;
};

TEST_F(ModelExplorerExportTest, ModulesAreLayersAndCallsAreNodes) {
  const auto step = Step("NaN", "Torch.c.0.forward");
  VisOptions options;
  options.overflow = true;
  EXPECT_THAT(Write(*step, nullptr, options),
              ElementsAre("node_data_max.json", "node_data_mean.json", "node_data_min.json", "node_data_norm.json",
                          "node_data_overflow.json", "target.json"));
  const std::string graphs = Text("target.json");
  EXPECT_THAT(graphs, HasSubstr(R"({"label":"target","graphs":[{"id":"target step0 rank3","nodes":[)"));
  EXPECT_THAT(graphs, HasSubstr(R"("id":"target step1 rank3")"));
  EXPECT_THAT(graphs,
              HasSubstr(R"("id":"Torch.b.0.forward","label":"Torch.b.0.forward","namespace":"fc.Linear.forward.0",)"
                        R"("incomingEdges":[{"sourceNodeId":"Torch.a.0.forward"}])"));
  EXPECT_THAT(graphs, HasSubstr(R"({"key":"tensor","value":"torch.float32 [2, 3]"},{"key":"max","value":"NaN"})"));
  // A value that JSON has not is left out.
  EXPECT_THAT(Text("node_data_max.json"),
              HasSubstr(R"({"target step0 rank3":{"name":"max","results":{"Torch.a.0.forward":{"value":1.0},)"
                        R"("Torch.c.0.forward":{"value":5.0}}})"));
  EXPECT_THAT(Text("node_data_overflow.json"), HasSubstr(R"("Torch.b.0.forward":{"value":"critical","bgColor":)"));
}

TEST_F(ModelExplorerExportTest, TwoSidesHaveVerdictsMetricsAndAMapping) {
  const auto target = Step("4.0", "Torch.c.0.forward");
  const auto golden = Step("2.0", "Torch.d.0.forward");
  Write(*target, golden.get());
  EXPECT_THAT(Text("node_data_verdict.json"), HasSubstr(R"("Torch.a.0.forward":{"value":"pass","bgColor":"#FFFCF3"})"));
  EXPECT_THAT(Text("node_data_max_diff.json"), HasSubstr(R"("Torch.b.0.forward":{"value":2.0})"));
  EXPECT_THAT(Text("node_data_max_relative_percent.json"), HasSubstr(R"("Torch.b.0.forward":{"value":100.0})"));
  EXPECT_THAT(Text("node_data_max.json"), HasSubstr(R"("golden step1 rank3")"));
  const std::string mapping = Text("mapping_step1_rank3.json");
  EXPECT_THAT(mapping, HasSubstr(R"({"leftNodeIds":["Torch.a.0.forward"],"rightNodeIds":["Torch.a.0.forward"]})"));
  EXPECT_THAT(mapping, HasSubstr(R"({"leftNodeIds":["fc.Linear.forward.0___group___"],)"
                                 R"("rightNodeIds":["fc.Linear.forward.0___group___"]})"));
  EXPECT_THAT(mapping, HasSubstr(R"("disableMappingFallback":true,"showDiffHighlights":true)"));
  EXPECT_THAT(mapping, testing::Not(HasSubstr("Torch.c")));
  for (const char* side : {"target.json", "golden.json"}) {
    EXPECT_THAT(Text(side), HasSubstr(R"("style":{"backgroundColor":"#C7C7C7"})")) << side;
  }
}

}  // namespace
}  // namespace msprobe::server
