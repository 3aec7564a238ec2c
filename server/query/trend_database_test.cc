#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "server/query/analysis_context.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/store.h"
#include "server/store/stored_pass.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kDump[] =
    R"({"task": "statistics", "data": {"Torch.add.0.forward": {"input_args": [{"type": "torch.Tensor",
        "dtype": "torch.float32", "shape": [2], "Max": 1.5, "Min": 0.5, "Mean": 1, "Norm": 2}], "output": []}}})";

class TrendDatabaseTest : public testing::Test {
 protected:
  TrendDatabaseTest() {
    context_.layouts = &layouts_;
    context_.paths_allowed = true;
    context_.spool_directory = directory_ / "spool";
  }

  void WriteStep(const std::string& name) {
    const std::string path = directory_ / name;
    std::filesystem::create_directories(path);
    std::ofstream(path + "/dump.json") << kDump;
  }

  absl::Status Ask(const v1::TrendDatabaseRequest& request, bool cancelled = false) {
    warnings_.clear();
    std::ofstream file(directory_ / "a.trend.db", std::ios::binary);
    return WriteTrendDatabase(
        context_, request, [&] { return cancelled; },
        [&](const v1::TrendDatabaseResponse& response) {
          file << response.content();
          if (response.has_warning()) warnings_.push_back(response.warning());
          return true;
        });
  }

  std::vector<std::string> Rows(const std::string& sql) {
    sqlite3* connection = nullptr;
    EXPECT_EQ(sqlite3_open((directory_ / "a.trend.db").c_str(), &connection), SQLITE_OK);
    std::vector<std::string> rows;
    const auto row = [](void* into, int size, char** cells, char**) {
      std::string text;
      for (int i = 0; i < size; ++i) text += std::string(i == 0 ? "" : "|") + (cells[i] == nullptr ? "-" : cells[i]);
      static_cast<std::vector<std::string>*>(into)->push_back(text);
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(connection, sql.c_str(), row, &rows, nullptr), SQLITE_OK) << sqlite3_errmsg(connection);
    sqlite3_close(connection);
    return rows;
  }

  ScratchDirectory directory_;
  TableLayouts layouts_;
  AnalysisContext context_;
  std::vector<std::string> warnings_;
};

TEST_F(TrendDatabaseTest, HasTheStepsAndRanksAskedFor) {
  for (const char* name : {"dump/step0/rank0", "dump/step4/rank0", "dump/step4/proc77"}) WriteStep(name);
  v1::TrendDatabaseRequest request;
  request.mutable_source()->set_path(directory_ / "dump");
  v1::Scope::Steps* steps = request.mutable_scope()->add_steps();
  steps->set_first(1);
  steps->set_last(9);
  ASSERT_TRUE(Ask(request).ok());
  // A process without a rank counts on.
  EXPECT_THAT(Rows("SELECT rank, step, norm, max, min, mean FROM trend_data"),
              ElementsAre("0|4|2.0|1.5|0.5|1.0", "1|4|2.0|1.5|0.5|1.0"));
  EXPECT_TRUE(std::filesystem::is_empty(context_.spool_directory)) << "the file in the making is gone";
}

TEST_F(TrendDatabaseTest, AStepWithoutCallsCountsAsOneMicroStep) {
  WriteStep("dump/step3/rank0");
  v1::TrendDatabaseRequest request;
  request.mutable_source()->set_path(directory_ / "dump");
  request.set_micro_steps(true);
  ASSERT_TRUE(Ask(request).ok());
  EXPECT_THAT(Rows("SELECT step FROM trend_data"), ElementsAre("0"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("step3/rank0/construct.json is missing: the step counts as one")));
}

TEST_F(TrendDatabaseTest, AStoredRunAlsoHasItsCountsOfNanAndZeros) {
  StoreOptions options;
  options.directory = directory_ / "data";
  auto store = *Store::Open(options);
  const RepeatedPass pass({.calls = 3});
  ASSERT_TRUE(PutRun(*store, "run", pass).ok());
  for (uint32_t step : {0, 1}) ASSERT_TRUE(PutStep(*store, pass, {1, 0, step, 0}).ok());
  context_.store = store.get();
  v1::TrendDatabaseRequest request;
  request.mutable_source()->set_run("run");
  for (bool micro_steps : {false, true}) {
    request.set_micro_steps(micro_steps);
    const absl::Status status = Ask(request);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(Rows("SELECT step, target_id FROM trend_data WHERE nans IS NOT NULL AND zeros IS NOT NULL"), SizeIs(12));
    EXPECT_THAT(Rows("SELECT max_step, forward FROM global_stats"), ElementsAre("1|norm,max,min,mean,nans,zeros"));
  }
}

TEST_F(TrendDatabaseTest, SaysWhatIsWrongAndLeavesNothing) {
  v1::TrendDatabaseRequest request;
  request.mutable_source()->set_run("run");
  request.set_kind(v1::TrendDatabaseRequest::KIND_MONITOR);
  EXPECT_THAT(std::string(Ask(request).message()), HasSubstr("need a path, not a run"));
  request.mutable_source()->set_path(directory_ / "absent");
  EXPECT_TRUE(absl::IsNotFound(Ask(request)));
  request.set_kind(v1::TrendDatabaseRequest::KIND_RECORDS);
  WriteStep("dump/step0/rank0");
  request.mutable_source()->set_path(directory_ / "dump");
  request.mutable_scope()->set_name_glob("Torch.*");
  EXPECT_TRUE(absl::IsInvalidArgument(Ask(request)));
  request.clear_scope();
  request.add_renames();
  EXPECT_TRUE(absl::IsInvalidArgument(Ask(request)));
  request.clear_renames();
  EXPECT_FALSE(Ask(request, /*cancelled=*/true).ok());
  context_.paths_allowed = false;
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask(request)));
  request.set_kind(v1::TrendDatabaseRequest::KIND_MONITOR);
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask(request)));
  EXPECT_TRUE(std::filesystem::is_empty(context_.spool_directory));
}

}  // namespace
}  // namespace msprobe::server
