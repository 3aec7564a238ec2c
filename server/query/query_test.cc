#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "absl/time/clock.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "server/query/query_context.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class QueryTest : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.directory = directory_ / "data";
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, SessionsOptions());
    context_ = {store_.get(), sessions_.get(), &metrics_, &activity_, directory_ / "incoming"};

    // Two ranks, two steps; the content of rank0's step 1 is saved.
    for (uint32_t rank : {1u, 0u}) {
      ScriptedAgent agent("rank" + std::to_string(rank), "job", rank);
      agent.Call(0, "add").Call(0, "mul").StepEnd(0);
      agent.Call(1, "add", rank == 1 ? 5 : 1);
      std::string hash;
      if (rank == 0) hash = agent.CallWithPayload(1, "saved", content_);
      agent.StepEnd(1).Gap(1, 3, v1::Marker::Gap::DROPPED).Fault(1, "Torch.add.0.forward", "why").End();
      auto session = sessions_->OpenSession(agent.hello());
      ASSERT_TRUE((*session)->Apply(agent.Take()).ok());
      if (rank == 0) {
        ASSERT_TRUE((*session)->AddPayload(ScriptedAgent::Chunk(hash, 0, content_, true)).ok());
      }
    }
  }

  static v1::Rank RankOf(uint32_t number) {
    v1::Rank rank;
    rank.set_kind(v1::Rank::RANK);
    rank.set_number(number);
    return rank;
  }
  v1::ReadRecordsRequest Records(uint32_t step, const std::string& glob = "") {
    v1::ReadRecordsRequest request;
    request.set_run("job");
    request.set_step(step);
    *request.mutable_rank() = RankOf(0);
    request.set_name_glob(glob);
    return request;
  }
  std::vector<std::string> Names(const v1::ReadRecordsRequest& request) {
    std::vector<std::string> names;
    absl::Status status = ReadRecords(context_, request, [&](const v1::Record& record) {
      names.push_back(record.full_name());
      return true;
    });
    if (!status.ok()) names.push_back(std::string(status.message()));
    return names;
  }
  // Content by path.
  absl::Status ExportTo(std::map<std::string, std::string>& files, const v1::ExportRequest& request) {
    std::string path;
    return Export(
        context_, request, [] { return false; },
        [&](const v1::FileChunk& chunk) {
          if (!chunk.path().empty()) path = chunk.path();
          files[path] += chunk.content();
          return true;
        });
  }
  absl::Status ImportFrom(const std::map<std::string, std::string>& files, const std::string& run,
                          v1::ImportResponse& response) {
    auto at = files.begin();
    bool first = true;
    return Import(
        context_, Caller(),
        [&](v1::ImportChunk& chunk) {
          chunk.Clear();
          if (at == files.end()) return false;
          if (std::exchange(first, false)) chunk.set_run(run);
          chunk.set_path(at->first);
          chunk.set_content(at->second);
          chunk.set_last(true);
          ++at;
          return true;
        },
        response);
  }

  const std::string content_ = std::string("\0\0\x80\x3f\0\0\0\x40", 8);  // 1.0f, 2.0f
  ScratchDirectory directory_;
  Metrics metrics_;
  Activity activity_{absl::Now()};
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
  QueryContext context_;
};

TEST_F(QueryTest, RunsAreSummedOverWhatIsShown) {
  v1::ListRunsResponse response;
  ASSERT_TRUE(ListRuns(context_, response).ok());
  ASSERT_EQ(response.runs_size(), 1);
  const v1::RunSummary& run = response.runs(0);
  EXPECT_EQ(run.run(), "job");
  EXPECT_EQ(run.steps(), 2u);
  EXPECT_EQ(run.ranks_size(), 2);
  EXPECT_EQ(run.records(), 7u);
  EXPECT_EQ(run.tensors(), 13u);
  EXPECT_EQ(run.payload_bytes(), 8u);
  EXPECT_EQ(run.open_sessions(), 0u);
  EXPECT_EQ(run.settings().level(), "L1");
  EXPECT_GT(run.row_bytes(), 0u);
  EXPECT_GT(run.created_unix_us(), 0);
}

TEST_F(QueryTest, StepsComeInOrderOfStepThenRankWithTheirLosses) {
  v1::ListStepsRequest request;
  request.set_run("job");
  std::vector<v1::StepSummary> steps;
  ASSERT_TRUE(ListSteps(context_, request, [&](const v1::StepSummary& step) {
                steps.push_back(step);
                return true;
              }).ok());
  std::vector<std::string> places;
  for (const auto& step : steps) places.push_back(std::to_string(step.step()) + RankName(step.rank()));
  EXPECT_THAT(places, ElementsAre("0rank0", "0rank1", "1rank0", "1rank1"));
  EXPECT_EQ(steps[2].state(), v1::StepSummary::COMPLETE);
  EXPECT_EQ(steps[2].records(), 2u);
  EXPECT_EQ(steps[2].payload_bytes(), 8u);
  EXPECT_EQ(steps[2].faults(), 1u);
  ASSERT_EQ(steps[2].gaps_size(), 1);
  EXPECT_EQ(steps[2].gaps(0).fragments(), 3u);
  request.set_run("nope");
  absl::Status status = ListSteps(context_, request, [](const v1::StepSummary&) { return true; });
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no run \"nope\"; there are: job"));
}

TEST_F(QueryTest, LaterSessionIsShownAndTheEarlierStaysReachable) {
  ScriptedAgent again("again", "job", 0);
  auto session = sessions_->OpenSession(again.hello());
  ASSERT_TRUE((*session)->Apply(again.Call(1, "other").StepEnd(1).Take()).ok());
  EXPECT_THAT(Names(Records(1)), ElementsAre("Torch.other.0.forward"));
  v1::ReadRecordsRequest earlier = Records(1);
  earlier.set_epoch(1);
  EXPECT_THAT(Names(earlier), ElementsAre("Torch.add.0.forward", "Torch.saved.0.forward"));
  v1::ListStepsRequest request;
  request.set_run("job");
  ASSERT_TRUE(ListSteps(context_, request, [&](const v1::StepSummary& step) {
                if (step.step() == 1 && step.rank().number() == 0) {
                  EXPECT_EQ(step.epoch(), 2u);
                  EXPECT_THAT(step.earlier_epochs(), ElementsAre(1));
                }
                return true;
              }).ok());
}

// It was killed before a server had heard of it, and the next process, which had begun, sends what it had spooled.
TEST_F(QueryTest, AnEarlierProcessesSessionThatComesLateIsNotShown) {
  for (const auto& [name, ticks] : {std::pair("later", 200), {"earlier", 100}}) {
    ScriptedAgent agent(name, "restarted", 0);
    agent.hello().set_boot_id("boot");
    agent.hello().set_process_start_ticks(ticks);
    auto session = sessions_->OpenSession(agent.hello());
    ASSERT_TRUE((*session)->Apply(agent.Call(1, name).StepEnd(1).Take()).ok());
  }
  v1::ReadRecordsRequest records = Records(1);
  records.set_run("restarted");
  EXPECT_THAT(Names(records), ElementsAre("Torch.later.0.forward"));
  v1::ListStepsRequest request;
  request.set_run("restarted");
  ASSERT_TRUE(ListSteps(context_, request, [&](const v1::StepSummary& step) {
                EXPECT_EQ(step.epoch(), 0u);
                EXPECT_THAT(step.earlier_epochs(), ElementsAre(1));
                return true;
              }).ok());
  records.set_epoch(1);
  EXPECT_THAT(Names(records), ElementsAre("Torch.earlier.0.forward"));
}

TEST_F(QueryTest, RecordsAreFoundByShellPatternAndToken) {
  EXPECT_THAT(Names(Records(0)), ElementsAre("Torch.add.0.forward", "Torch.mul.0.forward"));
  EXPECT_THAT(Names(Records(0, "*mul*")), ElementsAre("Torch.mul.0.forward"));
  EXPECT_THAT(Names(Records(0, "Torch.[ab]dd.?.forward")), ElementsAre("Torch.add.0.forward"));
  EXPECT_THAT(Names(Records(0, "Torch")), ElementsAre());
  v1::ReadRecordsRequest token = Records(0);
  token.set_token(7);
  EXPECT_THAT(Names(token), ElementsAre());
  EXPECT_THAT(Names(Records(9)), ElementsAre("run \"job\" has no step 9 of rank0; it has 0, 1"));
}

TEST_F(QueryTest, ReaderThatLeavesEndsTheAnswer) {
  int sent = 0;
  absl::Status status = ReadRecords(context_, Records(0), [&](const v1::Record&) { return ++sent > 1; });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(sent, 1);
}

class ReadTensorTest : public QueryTest {
 protected:
  absl::Status Read(const std::string& name, std::string* bytes = nullptr, bool npy = true) {
    v1::ReadTensorRequest request;
    request.set_run("job");
    request.set_name(name);
    request.set_format(npy ? v1::ReadTensorRequest::NPY : v1::ReadTensorRequest::PT);
    return ReadTensor(context_, request, [&](const v1::FileChunk& chunk) {
      if (!chunk.path().empty()) path_ = chunk.path();
      if (bytes != nullptr) *bytes += chunk.content();
      last_ = chunk.last();
      return true;
    });
  }
  std::string path_;
  bool last_ = false;
};

TEST_F(ReadTensorTest, GivesTheFile) {
  std::string bytes;
  ASSERT_TRUE(Read("Torch.saved.0.forward.input.0", &bytes).ok());
  EXPECT_EQ(path_, "Torch.saved.0.forward.input.0.npy");
  EXPECT_TRUE(last_);
  EXPECT_EQ(bytes.substr(0, 6), "\x93NUMPY");
  EXPECT_THAT(bytes, HasSubstr("'shape': (2,)"));
  EXPECT_EQ(bytes.substr(bytes.size() - 8), content_);
  bytes.clear();
  ASSERT_TRUE(Read("Torch.saved.0.forward.input.0", &bytes, false).ok());
  EXPECT_EQ(bytes.substr(0, 2), "PK");
  EXPECT_THAT(bytes, HasSubstr(content_));
}

TEST_F(ReadTensorTest, SaysWhatIsMissingOrAmbiguous) {
  absl::Status status = Read("Torch.add.0.forward.input.0");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step0/rank0, step0/rank1, step1/rank0, step1/rank1"));
  v1::ReadTensorRequest request;
  request.set_run("job");
  request.set_name("Torch.add.0.forward.input.0");
  request.set_step(1);
  *request.mutable_rank() = RankOf(0);
  status = ReadTensor(context_, request, [](const v1::FileChunk&) { return true; });
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("was not captured"));
  EXPECT_EQ(Read("Torch.nothing.0.forward.input.0").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Read("").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(QueryTest, ExportGivesTheDirectoriesAskedFor) {
  v1::ExportRequest request;
  request.set_run("job");
  request.add_steps(1);
  *request.add_ranks() = RankOf(0);
  std::map<std::string, std::string> files;
  ASSERT_TRUE(ExportTo(files, request).ok());
  std::vector<std::string> paths;
  for (const auto& [path, content] : files) paths.push_back(path);
  EXPECT_THAT(paths, testing::IsSupersetOf({"step1/rank0/dump.json", "step1/rank0/stack.json",
                                            "step1/rank0/construct.json", "step1/rank0/dump_error_info.log",
                                            "step1/rank0/dump_tensor_data/Torch.saved.0.forward.input.0.pt"}));
  EXPECT_THAT(files["step1/rank0/dump.json"], HasSubstr("Torch.saved.0.forward"));
  EXPECT_EQ(metrics_.Value(Metric::kExports, {"ok"}), 1);
}

TEST_F(QueryTest, ExportOfWhatDoesNotExistIsAnError) {
  std::map<std::string, std::string> files;
  v1::ExportRequest request;
  request.set_run("job");
  request.add_steps(4);
  EXPECT_THAT(std::string(ExportTo(files, request).message()), HasSubstr("no step 4; it has 0 to 1"));
  request.clear_steps();
  *request.add_ranks() = RankOf(9);
  EXPECT_THAT(std::string(ExportTo(files, request).message()), HasSubstr("no rank9; it has rank0, rank1"));
  EXPECT_TRUE(files.empty());
}

// A format of one file in all, as a stranger would add it.
TEST_F(QueryTest, ExportFormatIsRegisteredByName) {
  class Names : public StepsExport {
   public:
    explicit Names(FileSink& sink) : sink_(sink) {}
    absl::Status Add(const ExportedStep& step, const ExportedStep&) override {
      text_ += "step" + std::to_string(step.step) + " " + RankName(step.records->rank()) + "\n";
      return absl::OkStatus();
    }
    absl::Status Finish() override {
      for (absl::Status status : {sink_.Begin("names.txt"), sink_.Write(text_), sink_.End()}) {
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    }

   private:
    FileSink& sink_;
    std::string text_;
  };
  context_.formats.Register("names",
                            [](const ExportOptions&, FileSink& sink) { return std::make_unique<Names>(sink); });
  v1::ExportRequest request;
  request.set_run("job");
  request.add_steps(1);
  request.set_format("names");
  std::map<std::string, std::string> files;
  ASSERT_TRUE(ExportTo(files, request).ok());
  EXPECT_THAT(files, ElementsAre(testing::Pair("names.txt", "step1 rank0\nstep1 rank1\n")));

  request.set_format("pictures");
  const absl::Status refused = ExportTo(files, request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("no export format \"pictures\"; there are dump, grad_probe, model-explorer, names, trend, vis"));
}

TEST_F(QueryTest, ImportTakesBackWhatExportGave) {
  v1::ExportRequest request;
  request.set_run("job");
  std::map<std::string, std::string> files, again;
  ASSERT_TRUE(ExportTo(files, request).ok());
  v1::ImportResponse response;
  absl::Status status = ImportFrom(files, "copy", response);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(response.steps(), 2u);
  EXPECT_EQ(response.records(), 7u);
  request.set_run("copy");
  ASSERT_TRUE(ExportTo(again, request).ok());
  for (const char* file : {"step0/rank0/dump.json", "step1/rank1/dump.json", "step1/rank0/construct.json",
                           "step1/rank0/dump_tensor_data/Torch.saved.0.forward.input.0.pt"}) {
    EXPECT_EQ(again[file], files[file]) << file;
  }
  std::error_code error;
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "incoming", error)) << "the upload is gone";
}

TEST_F(QueryTest, ImportRefusesPathsThatLeaveTheirDirectory) {
  v1::ImportResponse response;
  for (const char* path : {"../x", "/etc/x", "a/../b", "a//b"}) {
    absl::Status status = ImportFrom({{path, "x"}}, "copy", response);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_THAT(std::string(ImportFrom({{"a", "x"}}, "", response).message()), HasSubstr("run is empty"));
  EXPECT_THAT(std::string(ImportFrom({}, "copy", response).message()), HasSubstr("without messages"));
}

TEST_F(QueryTest, DeleteRunFreesItsBytesAndRefusesRunsInUse) {
  v1::DeleteRunRequest request;
  request.set_run("job");
  v1::DeleteRunResponse response;
  {
    ScriptedAgent agent("live", "job", 0);
    auto session = sessions_->OpenSession(agent.hello());
    absl::Status status = DeleteRun(context_, request, response);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("is being captured"));
    ASSERT_TRUE((*session)->Apply(agent.End().Take()).ok());
  }
  ASSERT_TRUE(DeleteRun(context_, request, response).ok());
  EXPECT_EQ(response.payload_bytes(), 8u);
  EXPECT_GT(response.row_bytes(), 0u);
  v1::ListRunsResponse runs;
  ASSERT_TRUE(ListRuns(context_, runs).ok());
  EXPECT_EQ(runs.runs_size(), 0);
}

}  // namespace
}  // namespace msprobe::server
