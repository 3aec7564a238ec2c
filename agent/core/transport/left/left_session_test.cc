// What a killed process had captured, sent by whoever comes next. The process is this program with --capture: it emits
// as told, says in a pipe what has returned, and is killed.

#include "agent/core/transport/left/left_session.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "agent/core/payload/session_place.h"
#include "agent/core/process_identity.h"
#include "agent/core/session_fixture.h"
#include "agent/core/transport/outbox/spool.h"
#include "agent/core/transport/sender.h"

extern char** environ;

namespace msprobe::core {
namespace {

constexpr size_t kPayloadBytes = 20'000;
constexpr int kProgress = 100;  // the descriptor on which the capturing process says what has returned

// What the capturing process does, as arguments.
struct Plan {
  std::string server, spool;
  uint32_t first = 0, records = 100;  // counts of the records
  uint32_t payload_every = 0;         // 0: no payloads
  uint64_t ceiling = uint64_t{256} << 20;
  std::string policy = "spool", memory;
  uint32_t pause_us = 0;          // after each record
  std::string end = "kill";       // itself, when all is emitted; "segv"; "wait" to be killed
  bool wait = false;              // first until all is durable
  uint32_t pending = UINT32_MAX;  // this record's numbers never come
  uint32_t lose = 0;              // payloads larger than the ceiling, after the last record

  std::vector<std::string> Arguments() const {
    return {server, spool,         Cat(first), Cat(records),     Cat(payload_every), Cat(ceiling), policy,
            memory, Cat(pause_us), end,        wait ? "1" : "0", Cat(pending),       Cat(lose)};
  }
  static Plan Of(char** argument) {
    Plan plan;
    const auto number = [&] { return std::stoull(*argument++); };
    plan.server = *argument++;
    plan.spool = *argument++;
    plan.first = static_cast<uint32_t>(number());
    plan.records = static_cast<uint32_t>(number());
    plan.payload_every = static_cast<uint32_t>(number());
    plan.ceiling = number();
    plan.policy = *argument++;
    plan.memory = *argument++;
    plan.pause_us = static_cast<uint32_t>(number());
    plan.end = *argument++;
    plan.wait = number() != 0;
    plan.pending = static_cast<uint32_t>(number());
    plan.lose = static_cast<uint32_t>(number());
    return plan;
  }
};

class NeverComes final : public PendingReading {
 public:
  State state() const override { return State::kUnderWay; }
  void RingWhenDone(std::shared_ptr<Doorbell>) override {}
  void Complete(Leaf&) override {}
};

char ContentOf(uint32_t count) { return static_cast<char>('a' + count % 26); }

int Capture(const Plan& plan) {
  SessionOptions options;
  options.run = "run";
  options.server = plan.server;
  options.spool_directory = plan.spool;
  options.memory_ceiling_bytes = plan.ceiling;
  options.session_memory = plan.memory;
  options.settings.task = plan.payload_every > 0 ? kTaskWithPayloads : "statistics";
  options.loss_policy = plan.policy == "drop" ? LossPolicy::kDrop : LossPolicy::kSpool;
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(options);
  if (!session.ok()) return 1;
  Structure structure;
  structure.name = "Torch.add";
  structure.fields.kind = NodeKind::kDict;
  Node tensor;
  tensor.kind = NodeKind::kTensor;
  tensor.key = "output";
  tensor.type = "torch.Tensor";
  structure.fields.children.push_back(tensor);
  const StructureId id = (*session)->DefineStructure(structure);
  const Frame frame{.path = "<cell>", .line = 1, .function = "f", .source = "x = y"};
  const StackId stack = (*session)->DefineStack({&frame, 1});
  for (uint32_t count = plan.first; count < plan.first + plan.records; ++count) {
    static constexpr std::array<int64_t, 2> kShape = {3, 4};
    Leaf leaf;
    leaf.shape = kShape;
    leaf.has_statistics = true;
    leaf.max = count;
    if (count == plan.pending) leaf.pending = std::make_shared<NeverComes>();
    if (plan.payload_every > 0 && count % plan.payload_every == 0) {
      leaf.payload = (*session)->AllocatePayload(kPayloadBytes);
      if (leaf.payload != nullptr) {
        std::memset(leaf.payload->bytes().data(), ContentOf(count), kPayloadBytes);
        std::memcpy(leaf.payload->bytes().data(), &count, sizeof(count));
      }
    }
    Fragment fragment;
    fragment.structure = id;
    fragment.count = count;
    fragment.ordinal = count;
    fragment.flags = kEnter | kExit;
    fragment.stack = stack;
    fragment.parent = (*session)->DefineParent(Cat("Module.", count / 50));
    fragment.leaves = {&leaf, 1};
    (*session)->Emit(fragment);
    [[maybe_unused]] const ssize_t said = write(kProgress, &count, sizeof(count));
    if (plan.pause_us > 0) usleep(plan.pause_us);
  }
  for (uint32_t i = 0; i < plan.lose; ++i) (*session)->AllocatePayload(plan.ceiling);
  if (plan.wait && !(*session)->Wait(absl::Seconds(20)).ok()) return 1;
  if (plan.end == "segv") {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  if (plan.end == "kill") raise(SIGKILL);
  pause();
  return 0;
}

class CapturingProcess {
 public:
  explicit CapturingProcess(const Plan& plan) {
    int both[2];
    EXPECT_EQ(pipe2(both, O_CLOEXEC), 0);
    said_ = both[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, both[1], kProgress);
    output_ = memfd_create("output", MFD_CLOEXEC);
    posix_spawn_file_actions_adddup2(&actions, output_, STDOUT_FILENO);
    std::vector<std::string> arguments = {"/proc/self/exe", "--capture"};
    for (std::string& argument : plan.Arguments()) arguments.push_back(std::move(argument));
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, pointers.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(both[1]);
  }
  ~CapturingProcess() {
    if (process_ > 0) Kill();
    close(said_);
    close(output_);
  }

  void Kill() {
    kill(process_, SIGKILL);
    Await();
  }
  void Await() {
    while (ReadSome()) {
    }
    int status = 0;
    EXPECT_EQ(waitpid(std::exchange(process_, -1), &status, 0) > 0, true);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended with " << status;
  }
  // Until this many records were emitted, or it has ended.
  void AwaitRecords(size_t records) {
    while (said_bytes_.size() < records * sizeof(uint32_t) && ReadSome()) {
    }
  }
  // The records of which Emit has returned. When it is gone.
  size_t records() const { return said_bytes_.size() / sizeof(uint32_t); }

  // Whether a line of its log has this, once it is gone.
  bool Said(std::string_view text) const {
    std::string output(1 << 16, '\0');
    const ssize_t size = pread(output_, output.data(), output.size(), 0);
    return output.substr(0, static_cast<size_t>(std::max<ssize_t>(size, 0))).find(text) != std::string::npos;
  }

 private:
  bool ReadSome() {
    char bytes[4096];
    const ssize_t got = read(said_, bytes, sizeof(bytes));
    if (got > 0) said_bytes_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  pid_t process_ = -1;
  int said_ = -1, output_ = -1;
  std::string said_bytes_;
};

class LeftSessionTest : public SessionTest {
 protected:
  Plan PlanOf(uint32_t records) {
    Plan plan;
    plan.server = options_.server;
    plan.spool = options_.spool_directory;
    plan.records = records;
    return plan;
  }

  // The next session with this spool directory, until nothing of others is left.
  void OpenAndDrain() {
    Open();
    EXPECT_TRUE(
        Eventually([&] { return LeftSession::Names(options_.spool_directory).size() == 1; }, absl::Seconds(120)));
    session_.reset();
  }

  // All that the process had emitted, in order, each once; and at most the one that it was emitting. Gives how many.
  size_t ExpectAllThere(size_t returned) {
    const std::vector<Emitted> found = Fragments(fake_.batches());
    EXPECT_GE(found.size(), returned);
    EXPECT_LE(found.size(), returned + 1);
    for (uint32_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].count, i);
    EXPECT_EQ(LostIn(fake_.batches()).fragments, 0u);
    EXPECT_EQ(LostIn(fake_.batches()).payloads, 0u);
    return found.size();
  }
  void ExpectPayloads(size_t records, uint32_t every) {
    std::map<uint32_t, std::string> found;
    for (const auto& [hash, content] : fake_.payloads()) {
      uint32_t count = 0;
      ASSERT_EQ(content.size(), kPayloadBytes);
      std::memcpy(&count, content.data(), sizeof(count));
      EXPECT_EQ(content.substr(sizeof(count)), std::string(kPayloadBytes - sizeof(count), ContentOf(count)));
      found[count] = content;
    }
    for (uint32_t count = 0; count < records; count += every) EXPECT_TRUE(found.contains(count)) << count;
  }
};

TEST_F(LeftSessionTest, WhatAKilledProcessHadEmittedIsSentByTheNextOne) {
  for (const char* end : {"kill", "segv"}) {
    Plan plan = PlanOf(3000);
    plan.payload_every = 100;
    plan.end = end;
    CapturingProcess process(plan);
    process.Await();
    EXPECT_EQ(process.records(), 3000u);
    ASSERT_EQ(Memories().size(), 1u);
    EXPECT_TRUE(std::filesystem::exists(Memories()[0]));
    fake_.Start();
    OpenAndDrain();
    EXPECT_EQ(ExpectAllThere(3000), 3000u);
    ExpectPayloads(3000, 100);
    EXPECT_TRUE(Memories().empty()) << "nothing is left";
    fake_.Stop();
    fake_.Forget();
  }
}

TEST_F(LeftSessionTest, AKillAtAnyMomentLosesAndDoublesNothing) {
  std::minstd_rand random(19);
  fake_.Start();
  size_t cut_short = 0;
  for (int round = 0; round < 20; ++round) {
    // A stream that ends before its answers: batches that are durable and not known to be.
    fake_.Set({.end_stream_after = round % 3 == 0 ? 4 : 0, .reads_memory = round % 2 == 0});
    Plan plan = PlanOf(1'000'000);
    plan.payload_every = 20;
    plan.pause_us = round % 4 == 0 ? 0 : 100;
    plan.end = "wait";
    CapturingProcess process(plan);
    process.AwaitRecords(random() % 4000);
    process.Kill();
    const size_t returned = process.records();
    cut_short += Fragments(fake_.batches()).size() < returned;
    fake_.Set({});
    OpenAndDrain();
    const size_t found = ExpectAllThere(returned);
    ExpectPayloads(found, 20);
    EXPECT_TRUE(Memories().empty());
    fake_.Forget();
  }
  EXPECT_GT(cut_short, 10u) << "what was captured had been sent already: this tests nothing";
}

TEST_F(LeftSessionTest, WhoeverSendsItMayBeKilledToo) {
  Plan plan = PlanOf(20'000);
  plan.payload_every = 50;
  CapturingProcess(plan).Await();
  fake_.Start();
  std::minstd_rand random(3);
  for (int round = 0; round < 15; ++round) {
    // So slow that it is not done when it is killed.
    fake_.Set({.end_stream_after = round % 2 == 0 ? 3 : 0, .bytes_per_second = 20'000'000});
    Plan next = PlanOf(0);
    next.end = "wait";
    CapturingProcess sender(next);
    const int streams = fake_.streams();
    EXPECT_TRUE(Eventually([&] { return fake_.streams() > streams; }));
    absl::SleepFor(absl::Milliseconds(random() % 30));  // the kill comes anywhere
    sender.Kill();
  }
  fake_.Set({});
  OpenAndDrain();
  ExpectAllThere(20'000);
  ExpectPayloads(20'000, 50);
}

TEST_F(LeftSessionTest, WhatLiesInTheSpoolAndWhatLiesInMemoryAreOne) {
  Plan plan = PlanOf(30'000);
  plan.payload_every = 50;
  plan.ceiling = 3'000'000;
  CapturingProcess process(plan);
  process.Await();
  EXPECT_FALSE(Spool::Names(options_.spool_directory).empty()) << "nothing was spooled: this tests nothing";
  fake_.Start();
  OpenAndDrain();
  ExpectAllThere(30'000);
  ExpectPayloads(30'000, 50);
  EXPECT_TRUE(Spool::Names(options_.spool_directory).empty());
}

TEST_F(LeftSessionTest, WhatWasDroppedIsCountedWhetherItHadItsMarkerOrNot) {
  Plan plan = PlanOf(60'000);  // packed, more than twice what the ceiling takes
  plan.ceiling = 1'000'000;
  plan.policy = "drop";
  plan.lose = 3;
  CapturingProcess process(plan);
  process.Await();
  fake_.Start();
  OpenAndDrain();
  const size_t found = Fragments(fake_.batches()).size();
  EXPECT_LT(found, 60'000u);
  EXPECT_EQ(found + LostIn(fake_.batches()).fragments, 60'000u);
  EXPECT_EQ(LostIn(fake_.batches()).payloads, 3u);
}

TEST_F(LeftSessionTest, ARecordWhoseNumbersWereOnTheirWayIsThereAndMarked) {
  Plan plan = PlanOf(1000);
  plan.pending = 400;
  CapturingProcess process(plan);
  process.Await();
  fake_.Start();
  OpenAndDrain();
  ExpectAllThere(1000);
  std::vector<uint32_t> faults;
  for (const v1::Batch& batch : fake_.batches()) {
    for (const v1::Item& item : batch.items()) {
      for (int i = 0; i < item.block().count_size(); ++i) {
        if (item.block().fragment_flags(i) & kFault) faults.push_back(item.block().count(i));
      }
    }
  }
  EXPECT_EQ(faults, std::vector<uint32_t>{400});
}

TEST_F(LeftSessionTest, WhatAServerHasIsNotSentAgain) {
  fake_.Start();
  Plan plan = PlanOf(2000);
  plan.payload_every = 100;
  plan.wait = true;
  CapturingProcess process(plan);
  process.Await();
  const int streams = fake_.streams();
  const uint64_t chunks = fake_.chunks();
  OpenAndDrain();
  EXPECT_EQ(fake_.streams(), streams) << "there was nothing to connect for";
  EXPECT_EQ(fake_.chunks(), chunks);
  ExpectAllThere(2000);
}

TEST_F(LeftSessionTest, ItIsSentAsItsProcessWouldHave) {
  CapturingProcess(PlanOf(10)).Await();
  fake_.Start();
  // Another server, another run: neither is for what was left.
  FakeIngest other((directory_ / "other").string());
  other.Start();
  options_.server = other.address();
  options_.run = "another";
  OpenAndDrain();
  EXPECT_EQ(fake_.hellos().back().run(), "run");
  EXPECT_EQ(other.streams(), 0);
  ExpectAllThere(10);
}

TEST_F(LeftSessionTest, WithoutMemoryThatOutlivesTheProcessNothingIsLeft) {
  for (const bool limited : {false, true}) {
    Plan plan = PlanOf(10);
    plan.memory = limited ? "" : "off";
    if (limited) {
      // Of the child, as it inherits it.
      const rlimit limit{size_t{1} << 30, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    CapturingProcess process(plan);
    const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &unlimited);
    process.Await();
    EXPECT_TRUE(LeftSession::Names(options_.spool_directory).empty());
    const bool said = process.Said("dies with this process if it is killed: the size of files is limited (ulimit -f)");
    EXPECT_EQ(said, limited) << "once, and not to who has asked for it";
  }
}

TEST_F(LeftSessionTest, ADamagedMemoryIsLeftAsItIsAndTheOthersAreSent) {
  CapturingProcess(PlanOf(10)).Await();
  const std::filesystem::path damaged = Memories().front();
  std::fstream(damaged, std::ios::in | std::ios::out | std::ios::binary).write("another thing", 13);
  CapturingProcess(PlanOf(20)).Await();
  fake_.Start();
  Open();
  EXPECT_TRUE(Eventually([&] { return Memories().size() == 2; })) << "the damaged one and this session's";
  session_.reset();
  EXPECT_EQ(ExpectAllThere(20), 20u);
  const auto left = LeftSession::TakeOver(options_.spool_directory, damaged.filename().string().substr(8));
  EXPECT_TRUE(absl::IsDataLoss(left.status())) << left.status();
  EXPECT_TRUE(std::filesystem::exists(damaged));
}

TEST_F(LeftSessionTest, AProcessThatLivesIsLeftAlone) {
  Plan plan = PlanOf(100);
  plan.end = "wait";
  CapturingProcess process(plan);
  process.AwaitRecords(100);
  const std::string name = LeftSession::Names(options_.spool_directory).at(0);
  const auto left = LeftSession::TakeOver(options_.spool_directory, name);
  EXPECT_TRUE(absl::IsUnavailable(left.status())) << left.status();
  process.Kill();
  fake_.Start();
  OpenAndDrain();
  ExpectAllThere(100);
}

}  // namespace
}  // namespace msprobe::core

int main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == "--capture") {
    return msprobe::core::Capture(msprobe::core::Plan::Of(argv + 2));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
