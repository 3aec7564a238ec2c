// Real agents and the real server, with an unruly network between them or one of them frozen.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <functional>

#include "agent/core/session.h"
#include "server/control/store_check.h"
#include "server/format/cat.h"
#include "server/ingest/scripted_load.h"
#include "server/store/scratch_directory.h"
#include "tests/chaos/unruly_proxy.h"

extern char** environ;

namespace msprobe::server {
namespace {

using testing::IsEmpty;

constexpr uint32_t kRanks = 2, kSteps = 12, kRecords = 300;

// MSPROBE_CHAOS_SECONDS is how long each disturbance lasts: a second, and ten minutes of a night.
absl::Duration Disturbance() {
  const char* seconds = std::getenv("MSPROBE_CHAOS_SECONDS");
  return absl::Seconds(seconds == nullptr ? 1 : std::max(1, std::atoi(seconds)));
}

class NetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> arguments = {MSPROBE_SERVER, "--listen=unix:" + directory_ / "s",
                                          "--data_dir=" + directory_ / "data", "--log_level=error"};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ASSERT_EQ(posix_spawn(&server_, argv[0], nullptr, nullptr, argv.data(), environ), 0);
    proxy_ = std::make_unique<UnrulyProxy>(directory_ / "p", directory_ / "s", 11);
  }
  void TearDown() override {
    if (server_ > 0) EndServer(SIGKILL);
  }
  int EndServer(int signal) {
    int status = -1;
    kill(server_, signal);
    waitpid(server_, &status, 0);
    server_ = -1;
    return status;
  }

  std::unique_ptr<core::Session> Agent(uint32_t rank) {
    core::SessionOptions options;
    options.run = "job";
    options.rank = {true, rank};
    options.server = "unix:" + directory_ / "p";
    options.spool_directory = directory_ / ("spool" + std::to_string(rank));
    auto session = core::Session::Open(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  static core::Structure Called() {
    core::Structure structure;
    structure.name = "Torch.op";
    structure.fields.kind = core::NodeKind::kDict;
    core::Node tensor;
    tensor.kind = core::NodeKind::kTensor;
    tensor.key = "output";
    tensor.type = "torch.Tensor";
    tensor.dtype = 2;
    structure.fields.children.push_back(tensor);
    return structure;
  }
  static int Value(uint32_t rank, uint32_t step, uint32_t record) {
    return static_cast<int>(rank * 100'000 + step * 1000 + record);
  }
  // One step; every fiftieth record has content of its own.
  static void EmitStep(core::Session& session, core::StructureId structure, uint32_t rank, uint32_t step) {
    for (uint32_t record = 0; record < kRecords; ++record) {
      core::Leaf leaf;
      leaf.has_statistics = true;
      leaf.max = Value(rank, step, record);
      std::array<int64_t, 1> shape = {4};
      if (record % 50 == 0) {
        shape[0] = 20'000;
        leaf.payload = session.AllocatePayload(80'000);
        ASSERT_NE(leaf.payload, nullptr);
        auto* numbers = reinterpret_cast<int*>(leaf.payload->bytes().data());
        for (int i = 0; i < 20'000; ++i) numbers[i] = Value(rank, step, record) ^ i;
      }
      leaf.shape = shape;
      core::Fragment fragment;
      fragment.step = step;
      fragment.structure = structure;
      fragment.count = record;
      fragment.ordinal = record;
      fragment.flags = core::kEnter | core::kExit;
      fragment.leaves = std::span(&leaf, 1);
      session.Emit(fragment);
    }
    session.EndStep(step);
  }
  // Every rank emits its steps while `disturb` is called before each of them; then all is well and everybody ends.
  void Drive(const std::function<void(uint32_t step)>& disturb, const std::function<void()>& calm) {
    std::vector<std::unique_ptr<core::Session>> sessions;
    std::vector<core::StructureId> structures;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      sessions.push_back(Agent(rank));
      structures.push_back(sessions.back()->DefineStructure(Called()));
    }
    for (uint32_t step = 0; step < kSteps; ++step) {
      disturb(step);
      for (uint32_t rank = 0; rank < kRanks; ++rank) EmitStep(*sessions[rank], structures[rank], rank, step);
    }
    calm();
    for (auto& session : sessions) {
      EXPECT_TRUE(session->Wait(absl::Seconds(60)).ok());
      EXPECT_EQ(session->counters().fragments_dropped, 0u);
      EXPECT_EQ(session->counters().payloads_dropped, 0u);
      absl::Status closed = session->Close(true, absl::Seconds(60));
      EXPECT_TRUE(closed.ok()) << closed;
    }
  }
  // Each record once, in order, in complete steps; every content by its hash.
  void CheckStored() {
    EXPECT_EQ(EndServer(SIGTERM), 0);
    StoreOptions options;
    options.directory = directory_ / "data";
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    v1::Rank rank;
    rank.set_kind(v1::Rank::RANK);
    for (uint32_t number = 0; number < kRanks; ++number) {
      rank.set_number(number);
      for (uint32_t step = 0; step < kSteps; ++step) {
        auto reader = (*store)->OpenStep("job", step, rank);
        ASSERT_TRUE(reader.ok()) << reader.status();
        EXPECT_EQ((*reader)->state(), v1::StepSummary::COMPLETE);
        EXPECT_THAT((*reader)->gaps(), IsEmpty());
        std::vector<std::string> expected;
        for (uint32_t record = 0; record < kRecords; ++record) {
          expected.push_back(Cat("Torch.op.", record, ".forward=", Value(number, step, record)));
        }
        EXPECT_EQ(RecordsOf(**reader), expected) << "rank " << number << " step " << step;
      }
    }
    auto report = CheckStore(**store);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->damages, IsEmpty());
    EXPECT_EQ(report->payloads, uint64_t{kRanks} * kSteps * kRecords / 50);
  }

  ScratchDirectory directory_;
  pid_t server_ = -1;
  std::unique_ptr<UnrulyProxy> proxy_;
};

TEST_F(NetworkTest, ConnectionsThatAreCutAnywhereLoseAndDoubleNothing) {
  proxy_->CutAfter(600'000);
  Drive([](uint32_t) { absl::SleepFor(Disturbance() / kSteps); }, [this] { proxy_->CutAfter(0); });
  EXPECT_GT(proxy_->cuts(), 3u) << "nothing was cut: this test tests nothing";
  CheckStored();
}

TEST_F(NetworkTest, DelayedPiecesComeInOrder) {
  proxy_->Delay(absl::Milliseconds(3));
  Drive([](uint32_t) {}, [this] { proxy_->Delay(absl::ZeroDuration()); });
  CheckStored();
}

TEST_F(NetworkTest, AgentsOutlastANetworkThatIsGone) {
  Drive(
      [this](uint32_t step) {
        if (step == kSteps / 3) proxy_->Gone(true);
        if (step != kSteps / 2) return;
        absl::SleepFor(Disturbance());
        proxy_->Gone(false);
      },
      [] {});
  EXPECT_GT(proxy_->cuts(), 0u);
  CheckStored();
}

TEST_F(NetworkTest, AFrozenServerGoesOnWhereItStood) {
  Drive(
      [this](uint32_t step) {
        if (step == kSteps / 3) kill(server_, SIGSTOP);
        if (step != kSteps / 2) return;
        absl::SleepFor(Disturbance());
        kill(server_, SIGCONT);
      },
      [] {});
  CheckStored();
}

}  // namespace
}  // namespace msprobe::server
