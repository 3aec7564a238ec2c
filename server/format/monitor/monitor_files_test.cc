#include "server/format/monitor/monitor_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::string> kWanted = {"norm", "max", "nans"};

class MonitorFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/monitor-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = directory_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  // "rank/step.micro_step metric name values", of every row.
  std::vector<std::string> Rows() {
    auto files = MonitorFiles::Find(directory_, kWanted);
    EXPECT_TRUE(files.ok()) << files.status();
    std::vector<std::string> rows;
    absl::Status status = files->ForEachRow(
        [&](const MonitorRow& row) {
          std::string text = Cat(row.rank, "/", row.step, ".", row.micro_step, " ", MonitorFiles::kMetrics[row.metric],
                                 " ", row.name);
          for (const auto& value : row.values) text += value ? Cat(" ", *value) : " -";
          rows.push_back(text);
          return absl::OkStatus();
        },
        [&](const std::string& warning) { warnings_.push_back(warning); });
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  }

  std::string directory_;
  std::vector<std::string> warnings_;
};

TEST_F(MonitorFilesTest, ReadsTheFirstMonitorsFiles) {
  Write("Nov26_02-58-18-rank1-9b4730e6/actv_0-0.csv",
        "vpp_stage,name,step,micro_step,max,norm,shape\n0,fc.input,0,0,1.5,2,\"[3, 4]\"\n0,fc.input,0,1,nan,inf,[3]\n");
  Write("Nov26_02-58-18-rank1-9b4730e6/param_origin_0-0.csv", "vpp_stage,name,step,max\n0,fc.weight,0,-3e-2\n");
  Write("Nov26_02-58-18-rank1-9b4730e6/notes.txt", "not of a monitor");
  EXPECT_THAT(Rows(), ElementsAre("1/0.0 actv fc.input 2 1.5", "1/0.1 actv fc.input inf -",
                                  "1/0.0 param_origin fc.weight - -0.03"));
  EXPECT_THAT(MonitorFiles::Find(directory_, kWanted)->statistics_of_metrics()[0], ElementsAre("norm", "max"));
  EXPECT_THAT(MonitorFiles::Find(directory_, kWanted)->statistics_of_metrics()[1], IsEmpty());
}

TEST_F(MonitorFilesTest, ReadsTheSecondMonitorsFilesAndCountsItsPasses) {
  Write("rank_0/module_step0-1.csv",
        "vpp_stage,step,module_name,scope,nans\n-1,0,fc.output.0,forward,0.0\n-1,0,fc.grad_input.0,backward,1\n"
        "-1,0,fc.output.0,forward,2\n-1,1,fc.output.0,forward,3\n");
  Write("rank_0/weight_grad_step0-1.csv",
        "vpp_stage,step,module_name,scope,micro_step,nans\n-1,0,fc.weight,unreduced,1,0\n-1,0,fc.weight,reduced,2,0\n");
  EXPECT_THAT(Rows(), ElementsAre("0/0.0 actv fc.output.0 0", "0/0.0 actv_grad fc.grad_input.0 1",
                                  "0/0.1 actv fc.output.0 2", "0/1.0 actv fc.output.0 3",
                                  "0/0.1 grad_unreduced fc.weight 0", "0/0.0 grad_reduced fc.weight 0"));
}

TEST_F(MonitorFilesTest, ARestartedRankComesInOrderOfTime) {
  Write("Dec01_00-00-00-rank0-a/actv_1-1.csv", "vpp_stage,name,step,max\n0,fc,1,2\n");
  Write("Nov30_00-00-00-rank0-b/actv_1-1.csv", "vpp_stage,name,step,max\n0,fc,1,1\n");
  EXPECT_THAT(Rows(), ElementsAre("0/1.0 actv fc 1", "0/1.0 actv fc 2"));
}

TEST_F(MonitorFilesTest, LeavesOutWhatItCannotReadAndSaysSo) {
  Write("rank_3/param_step0-0.csv",
        "vpp_stage,step,module_name,scope,max\n-1,0,a,param_origin,1\n-1,0,b,strange,1\n-1,x,c,param_origin,1\n-1,0,d");
  Write("rank_3/module_step0-0.csv", "");
  EXPECT_THAT(Rows(), ElementsAre("3/0.0 param_origin a 1"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("param_step0-0.csv: line 3 and 2 more cannot be read")));
}

TEST_F(MonitorFilesTest, SaysWhatIsWrong) {
  EXPECT_TRUE(absl::IsNotFound(MonitorFiles::Find(directory_ + "/absent", kWanted).status()));
  EXPECT_THAT(std::string(MonitorFiles::Find(directory_, kWanted).status().message()),
              HasSubstr("holds no files of a training monitor"));
  Write("rank_0/cc_step0-0.csv", "step,module_name,max\n");
  EXPECT_THAT(std::string(MonitorFiles::Find(directory_, kWanted).status().message()),
              HasSubstr("cc_step0-0.csv: the first line has no column \"scope\""));
}

}  // namespace
}  // namespace msprobe::server
