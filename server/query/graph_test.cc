#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "server/ingest/scripted/scripted_agent.h"
#include "server/ingest/session/sessions.h"
#include "server/metrics/metrics.h"
#include "server/query/analysis_context.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/store.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kDump[] = R"({"task": "statistics", "data": {"Torch.add.0.forward": {"input_args": [], "output": []}}})";
constexpr char kConstruct[] = R"({"Torch.add.0.forward": "Module.a.A.forward.0", "Module.a.A.forward.0": null})";

class GraphTest : public testing::Test {
 protected:
  GraphTest() {
    context_.layouts = &layouts_;
    context_.paths_allowed = true;
    context_.spool_directory = directory_ / "spool";
  }
  ~GraphTest() override { sqlite3_close(connection_); }

  std::string WriteStep(const std::string& name, const std::string& construct) {
    std::string path = directory_ / name;
    std::filesystem::create_directories(path);
    std::ofstream(path + "/dump.json") << kDump;
    std::ofstream(path + "/construct.json") << construct;
    return path;
  }

  absl::Status Ask(const v1::GraphRequest& request, bool cancelled = false) {
    std::ofstream file(directory_ / "a.vis.db", std::ios::binary);
    return Graph(
        context_, request, [&] { return cancelled; },
        [&](const v1::GraphResponse& response) {
          file << response.content();
          if (response.has_warning()) warnings_.push_back(response.warning());
          if (response.has_unpaired()) unpaired_.push_back(response.unpaired().step());
          return true;
        });
  }

  std::string Nodes() {
    EXPECT_EQ(sqlite3_open((directory_ / "a.vis.db").c_str(), &connection_), SQLITE_OK);
    std::string nodes;
    const auto row = [](void* into, int, char** cells, char**) {
      *static_cast<std::string*>(into) += std::string(cells[0]) + " ";
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(connection_, "SELECT id FROM tb_nodes ORDER BY data_source, step, node_order", row, &nodes,
                           nullptr),
              SQLITE_OK)
        << sqlite3_errmsg(connection_);
    return nodes;
  }

  ScratchDirectory directory_;
  TableLayouts layouts_;
  AnalysisContext context_;
  std::vector<std::string> warnings_;
  std::vector<uint32_t> unpaired_;
  sqlite3* connection_ = nullptr;
};

TEST_F(GraphTest, ADirectoryWithoutStacksGivesAGraphAndAWarning) {
  v1::GraphRequest request;
  request.mutable_target()->set_path(WriteStep("step2/rank1", kConstruct));
  ASSERT_TRUE(Ask(request).ok());
  EXPECT_EQ(Nodes(), "NPU_2_1_Torch.add.0.forward NPU_2_1_Module.a.A.forward.0 NPU_2_1_DefaultModel ");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("step2/rank1/stack.json is missing")));
  EXPECT_TRUE(std::filesystem::is_empty(context_.spool_directory)) << "the file in the making is gone";
}

TEST_F(GraphTest, StepsOfBothSidesAreComparedAndOthersNamed) {
  WriteStep("a/step0/rank0", kConstruct);
  WriteStep("a/step1/rank0", kConstruct);
  WriteStep("b/step1/rank0", kConstruct);
  v1::GraphRequest request;
  request.mutable_target()->set_path(directory_ / "a");
  request.mutable_golden()->set_path(directory_ / "b");
  ASSERT_TRUE(Ask(request).ok());
  EXPECT_THAT(unpaired_, ElementsAre(0));
  EXPECT_THAT(Nodes(), testing::AllOf(HasSubstr("Bench_1_0_Torch.add.0.forward"), testing::Not(HasSubstr("NPU_0"))));
}

TEST_F(GraphTest, SaysWhatIsWrongAndLeavesNothing) {
  v1::GraphRequest request;
  const std::string path = WriteStep("step0/rank0", "{}");
  request.mutable_target()->set_path(path);
  EXPECT_THAT(std::string(Ask(request).message()), HasSubstr(path + "/construct.json names no module"));
  request.mutable_target()->set_path(WriteStep("step0/rank1", kConstruct));
  request.mutable_mapping()->set_apis(true);
  EXPECT_THAT(std::string(Ask(request).message()), HasSubstr("no mapping but one of layers"));
  request.clear_mapping();
  request.mutable_scope()->set_name_glob("Torch.*");
  EXPECT_TRUE(absl::IsInvalidArgument(Ask(request)));
  request.clear_scope();
  EXPECT_FALSE(Ask(request, /*cancelled=*/true).ok());
  EXPECT_TRUE(std::filesystem::is_empty(context_.spool_directory));
}

TEST_F(GraphTest, ALayerMappingThatRenamesNothingIsRefused) {
  v1::GraphRequest request;
  request.mutable_target()->set_path(WriteStep("step0/rank0", kConstruct));
  request.mutable_golden()->set_path(request.target().path());
  v1::NameMapping::Layer* layer = request.mutable_mapping()->add_layers();
  layer->set_class_name("Decoder");
  v1::NameMapping::Name* name = layer->add_names();
  name->set_target("b");
  name->set_golden("c");
  EXPECT_THAT(std::string(Ask(request).message()), HasSubstr("renames no module"));
  layer->clear_names();
  EXPECT_TRUE(Ask(request).ok()) << "by places alone";
}

TEST_F(GraphTest, AStoredRunHasTheCallsOfItsExport) {
  StoreOptions options;
  options.directory = directory_ / "data";
  auto store = Store::Open(options);
  ASSERT_TRUE(store.ok()) << store.status();
  context_.store = store->get();
  Metrics metrics;
  Sessions sessions(store->get(), &metrics, nullptr, SessionsOptions());
  ScriptedAgent agent("agent");
  auto session = sessions.OpenSession(agent.hello());
  ASSERT_TRUE(session.ok()) << session.status();
  agent.Call(0, "add", 3).Call(0, "mul", 4).StepEnd(0);
  ASSERT_TRUE((*session)->Apply(agent.Take()).ok());
  v1::GraphRequest request;
  request.mutable_target()->set_run("run");
  ASSERT_TRUE(Ask(request).ok());
  EXPECT_EQ(Nodes(),
            "NPU_0_0_Torch.add.0.forward NPU_0_0_Torch.mul.0.forward NPU_0_0_Apis_Between_Modules.0 "
            "NPU_0_0_DefaultModel ");
  EXPECT_THAT(warnings_, IsEmpty());
}

}  // namespace
}  // namespace msprobe::server
