#include "agent/core/session.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "agent/core/doorbell.h"
#include "agent/core/fake_ingest.h"
#include "agent/core/sender.h"
#include "agent/core/shared_file.h"
#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Emitted {
  uint32_t step, count;
  bool operator==(const Emitted&) const = default;
};

// Step and count of every fragment in order; checks on the way that ordinals and columns go together.
std::vector<Emitted> Fragments(const std::vector<v1::Batch>& batches) {
  std::vector<Emitted> found;
  for (const v1::Batch& batch : batches) {
    for (const v1::Item& item : batch.items()) {
      const v1::Block& block = item.block();
      uint64_t ordinal = 0;
      for (int i = 0; i < block.count_size(); ++i) {
        ordinal += static_cast<uint64_t>(block.ordinal_delta(i));
        EXPECT_EQ(ordinal, block.count(i));
        found.push_back({block.step(), block.count(i)});
      }
    }
  }
  return found;
}

std::vector<v1::Marker> Markers(const std::vector<v1::Batch>& batches) {
  std::vector<v1::Marker> found;
  for (const v1::Batch& batch : batches) {
    for (const v1::Item& item : batch.items()) {
      if (item.has_marker()) found.push_back(item.marker());
    }
  }
  return found;
}

struct Lost {
  uint64_t fragments = 0, payloads = 0;
};
Lost LostIn(const std::vector<v1::Batch>& batches) {
  Lost lost;
  for (const v1::Marker& marker : Markers(batches)) {
    lost.fragments += marker.gap().fragments();
    lost.payloads += marker.gap().payloads();
  }
  return lost;
}

bool Eventually(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (absl::Now() < deadline) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(2));  // between two looks at what other threads do
  }
  return false;
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest()
      : directory_(
            std::filesystem::temp_directory_path() /
            Cat("core-session-", getpid(), "-", ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        fake_((std::filesystem::create_directories(directory_), (directory_ / "s").string())) {
    options_.run = "run";
    options_.server = fake_.address();
    options_.spool_directory = (directory_ / "spool").string();
  }
  ~SessionTest() override {
    session_.reset();
    fake_.Stop();
    EXPECT_THAT(fake_.violations(), IsEmpty());
    std::filesystem::remove_all(directory_);
  }

  void Open() {
    absl::StatusOr<std::unique_ptr<Session>> opened = Session::Open(options_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    session_ = *std::move(opened);
    structure_ = session_->DefineStructure(Named("Torch.add"));
  }

  static Structure Named(const std::string& name) {
    Structure structure;
    structure.name = name;
    structure.fields.kind = NodeKind::kDict;
    Node tensor;
    tensor.kind = NodeKind::kTensor;
    tensor.key = "output";
    tensor.type = "torch.Tensor";
    tensor.dtype = 2;
    structure.fields.children.push_back(tensor);
    return structure;
  }

  void EmitPending(uint32_t step, uint32_t count, std::shared_ptr<PendingReading> pending,
                   std::shared_ptr<Payload> payload = nullptr) {
    Leaf leaf;
    leaf.pending = std::move(pending);
    leaf.payload = std::move(payload);
    EmitLeaf(step, count, std::move(leaf), structure_);
  }

  void Emit(uint32_t step, uint32_t count, std::shared_ptr<Payload> payload = nullptr, StructureId structure = 0) {
    Leaf leaf;
    leaf.has_statistics = true;
    leaf.max = count;
    leaf.payload = std::move(payload);
    EmitLeaf(step, count, std::move(leaf), structure == 0 ? structure_ : structure);
  }

  void EmitLeaf(uint32_t step, uint32_t count, Leaf leaf, StructureId structure) {
    static constexpr std::array<int64_t, 2> kShape = {3, 4};
    leaf.shape = kShape;
    Fragment fragment;
    fragment.step = step;
    fragment.structure = structure;
    fragment.count = count;
    fragment.ordinal = count;
    fragment.flags = kEnter | kExit;
    fragment.leaves = std::span(&leaf, 1);
    session_->Emit(fragment);
  }

  std::shared_ptr<Payload> MakePayload(size_t size, uint8_t fill) {
    std::shared_ptr<Payload> payload = session_->AllocatePayload(size);
    if (payload != nullptr) std::memset(payload->bytes().data(), fill, size);
    return payload;
  }

  // Counts first to last - 1, in order, each once.
  void ExpectCounts(uint32_t first, uint32_t last) {
    const std::vector<Emitted> found = Fragments(fake_.batches());
    ASSERT_EQ(found.size(), last - first);
    for (uint32_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i].count, first + i);
  }

  const std::filesystem::path directory_;
  FakeIngest fake_;
  SessionOptions options_;
  std::unique_ptr<Session> session_;
  StructureId structure_ = 0;
};

TEST_F(SessionTest, StreamsWhatWasEmittedInOrder) {
  fake_.Start();
  Open();
  for (uint32_t i = 0; i < 10'000; ++i) Emit(0, i);
  session_->EndStep(0);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectCounts(0, 10'000);
  EXPECT_EQ(Markers(fake_.batches()).back().step_end().step(), 0);
  EXPECT_EQ(session_->counters().fragments_dropped, 0);
  EXPECT_TRUE(session_->counters().connected);
  EXPECT_TRUE(session_->Close(true, absl::Seconds(20)).ok());
  EXPECT_TRUE(Markers(fake_.batches()).back().session_end().clean());
  EXPECT_TRUE(Eventually([&] { return fake_.clean_ends() == 1; }));
}

TEST_F(SessionTest, AServerThatComesLaterGetsEverything) {
  Open();
  for (uint32_t i = 0; i < 1000; ++i) Emit(0, i);
  EXPECT_EQ(session_->Wait(absl::Milliseconds(50)).code(), absl::StatusCode::kDeadlineExceeded);
  fake_.Start();
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectCounts(0, 1000);
}

TEST_F(SessionTest, StreamsThatEndAnywhereLoseAndDoubleNothing) {
  fake_.Start();
  fake_.Set({.end_stream_after = 3});
  Open();
  uint32_t count = 0;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 200; ++i, ++count) Emit(0, count, i == 0 ? MakePayload(100'000, round) : nullptr);
    absl::SleepFor(absl::Milliseconds(5));  // lets streams end between rounds; without, few do, and nothing fails
  }
  ASSERT_TRUE(session_->Wait(absl::Seconds(60)).ok());
  ExpectCounts(0, count);
  EXPECT_GT(fake_.streams(), 3);
  EXPECT_EQ(fake_.payloads().size(), 40);
}

// The server may get what a stream that was cut carried when the next stream has begun.
TEST_F(SessionTest, BatchesThatArriveByAFormerStreamAreNotSentAgain) {
  fake_.Set({.bytes_per_second = 100'000, .overtaken = 3});  // slow: the answer comes before the second batch goes
  Open();
  uint32_t count = 0;
  while (!absl::StrContains(session_->Wait(absl::Milliseconds(20)).message(), "6 batches")) {
    for (int i = 0; i < 500; ++i) Emit(0, count++);
    ASSERT_LT(count, 1'000'000u);
  }
  fake_.Start();
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(session_->counters().fragments_dropped, 0u);
  std::vector<uint64_t> sequences;
  for (const v1::Batch& batch : fake_.batches()) sequences.push_back(batch.batch_sequence());
  EXPECT_THAT(sequences, ElementsAre(1, 5, 6));
}

TEST_F(SessionTest, AServerThatIsKilledAndComesBackContinues) {
  fake_.Start();
  Open();
  for (uint32_t i = 0; i < 1000; ++i) Emit(0, i);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  fake_.Stop();
  for (uint32_t i = 1000; i < 2000; ++i) Emit(0, i);
  fake_.Start();
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectCounts(0, 2000);
  ASSERT_GE(fake_.hellos().size(), 2);
  EXPECT_EQ(fake_.hellos().back().session(), fake_.hellos().front().session());
  EXPECT_GT(fake_.hellos().back().freed_through(), 0);
}

TEST_F(SessionTest, AServerThatForgotIsToldOfTheGapAndCanReadOn) {
  fake_.Start();
  Open();
  Emit(0, 0);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  fake_.Stop();
  fake_.Forget();
  Emit(0, 1);
  fake_.Start();
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectCounts(1, 2);
  EXPECT_EQ(Markers(fake_.batches()).front().gap().reason(), v1::Marker::Gap::SERVER_LOST);
}

TEST_F(SessionTest, PayloadsAreSentOnceForEachContent) {
  fake_.Start();
  Open();
  for (uint32_t i = 0; i < 6; ++i) Emit(0, i, MakePayload(3'000'000, i % 2));
  Emit(0, 6, MakePayload(0, 0));
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  const std::map<std::string, std::string> payloads = fake_.payloads();
  ASSERT_EQ(payloads.size(), 3);
  for (const auto& [hash, content] : payloads) {
    EXPECT_TRUE(content.empty() || content == std::string(3'000'000, content[0]));
  }
  EXPECT_EQ(fake_.chunks(), 7);  // 3 + 3 of up to 1 MiB, and the empty one
}

class SharedMemoryTest : public SessionTest {
 protected:
  SharedMemoryTest() { options_.settings.task = kTaskWithPayloads; }
  void SetUp() override {
    const auto file = SharedFile::Create(size_t{1} << 20);
    if (file == nullptr || file->Allocate(1 << 20).empty()) GTEST_SKIP() << "no room in " << SharedFile::kDirectory;
  }

  // Of 1,000,000 bytes each.
  void EmitPayloads(uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; ++i) Emit(0, i, MakePayload(1'000'000, static_cast<uint8_t>(i)));
  }
  void ExpectPayloads(uint32_t last) {
    std::set<char> found;
    for (const auto& [hash, content] : fake_.payloads()) {
      EXPECT_EQ(content, std::string(1'000'000, content[0]));
      found.insert(content[0]);
    }
    EXPECT_EQ(found.size(), last);
  }
  std::filesystem::path shared_path() { return Cat(SharedFile::kDirectory, "/", fake_.hellos().back().shared_file()); }
};

TEST_F(SharedMemoryTest, PayloadsAreReadByAServerThatSaysSo) {
  fake_.Start();
  fake_.Set({.reads_memory = true});
  Open();
  EmitPayloads(0, 20);
  Emit(0, 20, MakePayload(1000, 99));
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(fake_.payloads().size(), 21);
  EXPECT_EQ(fake_.shared_chunks(), 20) << "the small one comes in a message";
  EXPECT_GT(session_->counters().bytes_sent, 20'000'000u) << "counted as before";
  ASSERT_TRUE(session_->Close(true, absl::Seconds(20)).ok());
  EXPECT_FALSE(std::filesystem::exists(shared_path()));
}

TEST_F(SharedMemoryTest, ComeInMessagesToAServerThatDoesNotSaySo) {
  fake_.Start();
  Open();
  EmitPayloads(0, 5);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectPayloads(5);
  EXPECT_EQ(fake_.shared_chunks(), 0);
}

TEST_F(SharedMemoryTest, IsNotOfferedWhereItIsSwitchedOffOrNothingNeedsIt) {
  fake_.Start();
  fake_.Set({.reads_memory = true});
  for (const bool off : {true, false}) {
    options_.shared_memory = !off;
    options_.settings.task = off ? kTaskWithPayloads : "statistics";
    Open();
    EmitPayloads(0, 1);
    ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
    EXPECT_EQ(fake_.hellos().back().shared_file(), "");
    ASSERT_TRUE(session_->Close(true, absl::Seconds(20)).ok());
    fake_.Forget();
  }
  EXPECT_EQ(fake_.shared_chunks(), 0);
}

TEST_F(SharedMemoryTest, WhatAServerMisreadsComesInMessages) {
  fake_.Start();
  fake_.Set({.reads_memory = true, .misreads_memory = true});
  Open();
  EmitPayloads(0, 5);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectPayloads(5);
  EXPECT_EQ(fake_.shared_chunks(), 5);
  EXPECT_EQ(fake_.chunks(), 10);
}

TEST_F(SharedMemoryTest, StreamsThatEndAnywhereAndServersThatReturnGetEveryPayload) {
  fake_.Start();
  fake_.Set({.end_stream_after = 3, .reads_memory = true});
  Open();
  EmitPayloads(0, 30);
  fake_.Stop();
  fake_.Start();
  EmitPayloads(30, 60);
  ASSERT_TRUE(session_->Wait(absl::Seconds(60)).ok());
  ExpectPayloads(60);
  EXPECT_GE(fake_.shared_chunks(), 60);
}

TEST_F(SharedMemoryTest, MemoryThatIsShortIsNotTakenFromAServerThatReadsIt) {
  fake_.Start();
  fake_.Set({.reads_memory = true});
  options_.memory_ceiling_bytes = 8'000'000;
  Open();
  EmitPayloads(0, 100);
  ASSERT_TRUE(session_->Wait(absl::Seconds(60)).ok());
  ExpectPayloads(100);
  EXPECT_EQ(session_->counters().payloads_dropped, 0);
}

TEST_F(SharedMemoryTest, AForkedChildLeavesItAlone) {
  fake_.Start();
  fake_.Set({.reads_memory = true});
  Open();
  std::shared_ptr<Payload> held = MakePayload(1'000'000, 7);
  const pid_t child = fork();
  if (child == 0) {
    session_->Abandon();
    held.reset();
    session_.reset();
    _exit(0);
  }
  int result = -1;
  waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
  Emit(0, 0, std::move(held));
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(fake_.payloads().begin()->second, std::string(1'000'000, 7));
  EXPECT_EQ(fake_.shared_chunks(), 1);
  EXPECT_TRUE(std::filesystem::exists(shared_path()));
}

TEST_F(SessionTest, SmallPayloadsComeTogetherToAServerThatTakesThem) {
  for (const bool takes : {false, true}) {
    fake_.Start();
    fake_.Set({.takes_chunks = takes});
    Open();
    const uint64_t chunks_before = fake_.chunks(), messages_before = fake_.chunk_messages();
    for (uint32_t i = 0; i < 200; ++i) Emit(0, i, MakePayload(1000, static_cast<uint8_t>(i)));
    Emit(0, 200, MakePayload(1'500'000, 1));
    ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
    EXPECT_EQ(fake_.payloads().size(), 201);
    EXPECT_EQ(fake_.chunks() - chunks_before, 202) << "one of 1 MiB and what is left";
    const uint64_t messages = fake_.chunk_messages() - messages_before;
    if (takes) {
      EXPECT_LT(messages, 50);
    } else {
      EXPECT_EQ(messages, 202);
    }
    ASSERT_TRUE(session_->Close(true, absl::Seconds(20)).ok());
    fake_.Stop();
    fake_.Forget();
  }
}

TEST_F(SessionTest, PayloadsThatTheServerHasAreNotSent) {
  fake_.Start();
  fake_.Set({.want_payloads = false});
  Open();
  for (uint32_t i = 0; i < 20; ++i) Emit(0, i, MakePayload(1'000'000, i));
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(fake_.chunks(), 0);
  EXPECT_LT(session_->counters().bytes_sent, 100'000);
}

TEST_F(SessionTest, DropPolicyCountsExactlyWhatIsMissing) {
  options_.loss_policy = LossPolicy::kDrop;
  options_.memory_ceiling_bytes = 200'000;
  Open();
  constexpr uint32_t kEmitted = 20'000;
  const absl::Time began = absl::Now();
  for (uint32_t i = 0; i < kEmitted; ++i) Emit(i / 10'000, i);
  EXPECT_LT(absl::Now() - began, absl::Seconds(20));
  const uint64_t dropped = session_->counters().fragments_dropped;
  EXPECT_GT(dropped, 0);
  fake_.Start();
  session_->EndStep(1);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(LostIn(fake_.batches()).fragments, dropped);
  EXPECT_EQ(Fragments(fake_.batches()).size() + dropped, kEmitted);
  for (const v1::Marker& marker : Markers(fake_.batches())) {
    if (marker.has_gap()) {
      EXPECT_EQ(marker.gap().reason(), v1::Marker::Gap::DROPPED);
    }
  }
  EXPECT_TRUE(Markers(fake_.batches()).back().has_step_end());
}

TEST_F(SessionTest, DroppedPayloadsAreCounted) {
  options_.loss_policy = LossPolicy::kDrop;
  options_.memory_ceiling_bytes = 1'000'000;
  Open();
  EXPECT_EQ(session_->AllocatePayload(2'000'000), nullptr);
  std::shared_ptr<Payload> held = MakePayload(900'000, 1);
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(session_->AllocatePayload(900'000), nullptr);
  held.reset();
  Emit(4, 0);
  fake_.Start();
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(session_->counters().payloads_dropped, 2);
  const std::vector<v1::Marker> markers = Markers(fake_.batches());
  ASSERT_EQ(markers.size(), 2);
  EXPECT_EQ(markers[0].gap().reason(), v1::Marker::Gap::PAYLOAD_TOO_LARGE);
  EXPECT_EQ(markers[1].gap().reason(), v1::Marker::Gap::DROPPED);
  EXPECT_EQ(markers[1].gap().payloads(), 1);
  EXPECT_EQ(markers[1].gap().step(), 4);
}

TEST_F(SessionTest, SpoolTakesWhatMemoryCannotAndIsDrainedInOrder) {
  options_.memory_ceiling_bytes = 1'000'000;
  options_.stall_bound = absl::Seconds(60);
  Open();
  uint32_t count = 0;
  for (int i = 0; i < 40; ++i) {
    Emit(0, count++, MakePayload(100'000, i));
    for (int j = 0; j < 500; ++j) Emit(0, count++);
  }
  EXPECT_EQ(session_->counters().fragments_dropped, 0);
  EXPECT_TRUE(Eventually([&] { return session_->counters().bytes_spooled > 1'000'000; }));
  fake_.Start();
  ASSERT_TRUE(session_->Wait(absl::Seconds(60)).ok());
  ExpectCounts(0, count);
  EXPECT_EQ(fake_.payloads().size(), 40);
  EXPECT_EQ(session_->counters().payloads_dropped, 0);
  EXPECT_TRUE(Eventually([&] { return session_->counters().bytes_spooled == 0; }));
  EXPECT_TRUE(std::filesystem::is_empty(options_.spool_directory));
}

TEST_F(SessionTest, WhatOneSessionCouldNotSendIsSentByTheNext) {
  options_.memory_ceiling_bytes = 1'000'000;
  Open();
  uint32_t count = 0;
  for (int i = 0; i < 20; ++i) {
    Emit(0, count++, MakePayload(100'000, i));
    for (int j = 0; j < 100; ++j) Emit(0, count++);
  }
  session_->EndStep(0);
  EXPECT_EQ(session_->Close(true, absl::Milliseconds(100)).code(), absl::StatusCode::kDeadlineExceeded);
  session_.reset();
  ASSERT_FALSE(std::filesystem::is_empty(options_.spool_directory));

  Open();  // without a server: nothing is lost by looking
  session_.reset();
  ASSERT_FALSE(std::filesystem::is_empty(options_.spool_directory));

  fake_.Start();
  Open();
  EXPECT_TRUE(Eventually([&] { return std::filesystem::is_empty(options_.spool_directory); }));
  ExpectCounts(0, count);
  EXPECT_EQ(fake_.payloads().size(), 20);
  EXPECT_EQ(fake_.hellos().size(), 1) << "the session that has said nothing is not there";
  const std::vector<v1::Marker> markers = Markers(fake_.batches());
  ASSERT_EQ(markers.size(), 2);
  EXPECT_TRUE(markers[0].has_step_end());
  EXPECT_TRUE(markers[1].session_end().clean());
}

TEST_F(SessionTest, AFullSpoolStallsUpToTheBoundThenDropsWithAGap) {
  options_.memory_ceiling_bytes = 300'000;
  options_.spool_quota_bytes = 300'000;
  options_.stall_bound = absl::Milliseconds(200);
  Open();
  const absl::Time began = absl::Now();
  uint32_t emitted = 0;
  while (session_->counters().fragments_dropped < 100 && emitted < 1'000'000) Emit(0, emitted++);
  const absl::Duration took = absl::Now() - began;
  EXPECT_GE(took, absl::Milliseconds(200));
  EXPECT_LT(took, absl::Seconds(20));
  fake_.Start();
  session_->EndStep(0);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(LostIn(fake_.batches()).fragments, session_->counters().fragments_dropped);
  EXPECT_EQ(Fragments(fake_.batches()).size() + session_->counters().fragments_dropped, emitted);
  bool spool_full = false;
  for (const v1::Marker& marker : Markers(fake_.batches())) {
    spool_full = spool_full || marker.gap().reason() == v1::Marker::Gap::SPOOL_FULL;
  }
  EXPECT_TRUE(spool_full);
}

TEST_F(SessionTest, AStallEndsWhenTheServerComes) {
  options_.loss_policy = LossPolicy::kStall;
  options_.memory_ceiling_bytes = 300'000;
  options_.stall_bound = absl::Seconds(60);
  Open();
  std::thread producer([&] {
    for (uint32_t i = 0; i < 20'000; ++i) Emit(0, i);
  });
  uint64_t before = 0;
  ASSERT_TRUE(Eventually([&] {
    const uint64_t now = session_->counters().fragments_emitted;
    return now > 0 && now == std::exchange(before, now);
  }));
  EXPECT_LT(session_->counters().fragments_emitted, 20'000) << "the producer is held";
  fake_.Start();
  producer.join();
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectCounts(0, 20'000);
}

TEST_F(SessionTest, TheEndOfAStepFollowsWhatEveryThreadEmitted) {
  fake_.Start();
  Open();
  constexpr uint32_t kThreads = 4, kSteps = 20, kEach = 300;
  for (uint32_t step = 0; step < kSteps; ++step) {
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (uint32_t i = 0; i < kEach; ++i) Emit(step, t * kEach + i);
      });
    }
    for (std::thread& thread : threads) thread.join();
    session_->EndStep(step);
  }
  ASSERT_TRUE(session_->Wait(absl::Seconds(60)).ok());
  uint32_t step = 0, in_step = 0;
  std::array<uint32_t, kThreads> next{};
  for (const v1::Batch& batch : fake_.batches()) {
    for (const v1::Item& item : batch.items()) {
      for (uint32_t count : item.block().count()) {
        ASSERT_EQ(item.block().step(), step);
        ASSERT_EQ(count % kEach, next[count / kEach]++);
        ++in_step;
      }
      if (!item.marker().has_step_end()) continue;
      ASSERT_EQ(item.marker().step_end().step(), step++);
      ASSERT_EQ(in_step, kThreads * kEach);
      in_step = 0;
      next = {};
    }
  }
  EXPECT_EQ(step, kSteps);
}

TEST_F(SessionTest, MarkersAndFaultsTravelInOrder) {
  fake_.Start();
  Open();
  session_->SetRank({.is_rank = true, .number = 3});
  Emit(0, 0);
  session_->ReportFault(0, "Torch.add.0.forward", "bad \xFF bytes");
  session_->DiscardStep(0);
  CaptureSettings settings;
  settings.task = "tensor";
  session_->SetSettings(settings);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  const std::vector<v1::Marker> markers = Markers(fake_.batches());
  ASSERT_EQ(markers.size(), 4);
  EXPECT_EQ(markers[0].rank_known().rank().number(), 3);
  EXPECT_EQ(markers[1].fault().message(), "bad \xEF\xBF\xBD bytes");
  EXPECT_TRUE(markers[2].has_step_discarded());
  EXPECT_EQ(markers[3].settings_changed().settings().task(), "tensor");
  fake_.Stop();
  fake_.Start();
  Emit(1, 1);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(fake_.hellos().back().rank().number(), 3);
  EXPECT_EQ(fake_.hellos().back().settings().task(), "tensor");
}

TEST_F(SessionTest, WaitsForExportsAndSaysWhereTheyAre) {
  fake_.Start();
  fake_.Set({.exports = true});
  Open();
  ::testing::internal::CaptureStdout();
  Emit(2, 0);
  session_->EndStep(2);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("[INFO] dump.json is at /dump/step2. \n"));
  session_->EndStep(5);  // nothing was captured in it: there is nothing to wait for
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  Emit(3, 0);
  session_->ExportOpenStep(3);  // this server does not answer
  const absl::Status status = session_->Wait(absl::Milliseconds(100));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not exported: step 3"));
}

TEST_F(SessionTest, AFragmentThatDoesNotFitItsStructureIsAGapAndTheRestGoesOn) {
  fake_.Start();
  Open();
  Emit(0, 0);
  Fragment fragment;
  fragment.structure = structure_;  // has a tensor; the fragment has none
  session_->Emit(fragment);
  fragment.structure = 999;
  session_->Emit(fragment);
  Emit(0, 1);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectCounts(0, 2);
  EXPECT_EQ(LostIn(fake_.batches()).fragments, 2);
  EXPECT_EQ(session_->counters().faults, 2);
}

TEST_F(SessionTest, ABatchThatTheServerRefusesIsReplacedByAGap) {
  fake_.Start();
  fake_.Set({.refuse_structure = "bad"});
  Open();
  Emit(0, 0);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  Emit(0, 1, nullptr, session_->DefineStructure(Named("bad")));
  ASSERT_TRUE(session_->Wait(absl::Milliseconds(20)).code() == absl::StatusCode::kDeadlineExceeded ||
              fake_.batches().size() > 1);
  Emit(0, 2);
  fake_.Set({});
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_THAT(Fragments(fake_.batches()).back(), (Emitted{0, 2}));
}

TEST_F(SessionTest, AThrottledSessionSendsNoFaster) {
  fake_.Start();
  fake_.Set({.bytes_per_second = 200'000});
  Open();
  const absl::Time began = absl::Now();
  Emit(0, 0);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  Emit(0, 1, MakePayload(100'000, 1));
  Emit(0, 2, MakePayload(1000, 2));
  Emit(0, 3, MakePayload(1001, 3));
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(300));
}

TEST_F(SessionTest, ARedirectedSessionGoesToItsServerAndStaysThere) {
  FakeIngest shard((directory_ / "shard").string());
  fake_.Start();
  fake_.Set({.redirect_to = shard.address()});
  shard.Start();
  Open();
  Emit(0, 0);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_THAT(fake_.hellos().at(0).capabilities(), ::testing::Contains("redirect"));
  EXPECT_EQ(fake_.streams(), 1);
  // It is that server's now, also when it is gone for a while.
  shard.Stop();
  Emit(0, 1);
  fake_.Set({});
  ASSERT_TRUE(Eventually([&] { return !session_->counters().connected; }));
  shard.Start();
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_THAT(Fragments(shard.batches()), ElementsAre(Emitted{0, 0}, Emitted{0, 1}));
  EXPECT_THAT(fake_.batches(), IsEmpty());
  EXPECT_EQ(fake_.streams(), 1);
  EXPECT_THAT(shard.violations(), IsEmpty());
  session_.reset();
}

TEST_F(SessionTest, OfSeveralServersTheOneThatIsThereIsAsked) {
  options_.server = Cat("unix:", (directory_ / "nobody").string(), ", ", fake_.address());
  fake_.Start();
  Open();
  Emit(0, 0);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_THAT(Fragments(fake_.batches()), ElementsAre(Emitted{0, 0}));
}

TEST_F(SessionTest, ServersThatSendItInACircleAreNotAskedWithoutEnd) {
  fake_.Start();
  fake_.Set({.redirect_to = fake_.address()});
  Open();
  Emit(0, 0);
  ASSERT_TRUE(Eventually([&] { return fake_.streams() >= 5; }));
  const int before = fake_.streams();
  EXPECT_FALSE(session_->Wait(absl::Milliseconds(200)).ok());
  EXPECT_LT(fake_.streams() - before, 40) << "it waits between the rounds";
  fake_.Set({});
  EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
}

// A reading that the test lets come or fail.
class ToldReading : public PendingReading {
 public:
  explicit ToldReading(double max) : max_(max) {}

  State state() const override { return state_; }
  void RingWhenDone(std::shared_ptr<Doorbell> bell) override {
    MutexLock lock(&mu_);
    bell_ = std::move(bell);
    if (state_ != State::kUnderWay) bell_->Ring();
  }
  void Complete(Leaf& leaf) override {
    leaf.has_statistics = true;
    leaf.max = max_;
  }
  void Become(State state) {
    MutexLock lock(&mu_);
    state_ = state;
    if (bell_ != nullptr) bell_->Ring();
  }

 private:
  const double max_;
  std::atomic<State> state_{State::kUnderWay};
  Mutex mu_;
  std::shared_ptr<Doorbell> bell_ ABSL_GUARDED_BY(mu_);
};

struct LeafSeen {
  uint32_t count;
  double max;  // -1: no numbers
  bool fault;
  bool operator==(const LeafSeen&) const = default;
};

// Of fragments with one leaf each.
std::vector<LeafSeen> Leaves(const std::vector<v1::Batch>& batches) {
  std::vector<LeafSeen> found;
  for (const v1::Batch& batch : batches) {
    for (const v1::Item& item : batch.items()) {
      const v1::Block& block = item.block();
      int narrow = 0;
      for (int i = 0; i < block.count_size(); ++i) {
        const bool numbers = (block.leaf_flags(i) & v1::LEAF_STATISTICS) != 0;
        found.push_back({block.count(i), numbers ? block.narrow(narrow) : -1, (block.fragment_flags(i) & kFault) != 0});
        if (numbers) narrow += 5;
      }
    }
  }
  return found;
}

TEST_F(SessionTest, ReadingsOnTheirWayHoldTheirPlaceAndNobodyElse) {
  fake_.Start();
  Open();
  const auto first = std::make_shared<ToldReading>(11), second = std::make_shared<ToldReading>(12);
  Emit(0, 0);
  EmitPending(0, 1, first);
  EmitPending(0, 2, second);
  Emit(0, 3);
  session_->EndStep(0);
  // What stands before goes; what stands behind, the marker too, keeps its place.
  ASSERT_TRUE(Eventually([&] { return Leaves(fake_.batches()).size() == 1; }));
  EXPECT_THAT(std::string(session_->Wait(absl::Milliseconds(50)).message()), HasSubstr("from the device"));
  second->Become(PendingReading::State::kCame);
  EXPECT_FALSE(session_->Wait(absl::Milliseconds(50)).ok());
  EXPECT_EQ(Leaves(fake_.batches()).size(), 1);
  first->Become(PendingReading::State::kCame);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_THAT(Leaves(fake_.batches()), ElementsAre(LeafSeen{0, 0, false}, LeafSeen{1, 11, false},
                                                   LeafSeen{2, 12, false}, LeafSeen{3, 3, false}));
  EXPECT_EQ(session_->counters().faults, 0);
}

TEST_F(SessionTest, AReadingThatFailedLeavesItsRecordWithoutNumbersAndMarked) {
  fake_.Start();
  Open();
  const auto reading = std::make_shared<ToldReading>(11);
  EmitPending(0, 0, reading, MakePayload(8, 1));
  Emit(0, 1);
  reading->Become(PendingReading::State::kLost);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_THAT(Leaves(fake_.batches()), ElementsAre(LeafSeen{0, -1, true}, LeafSeen{1, 1, false}));
  EXPECT_THAT(fake_.payloads(), IsEmpty());
  EXPECT_EQ(session_->counters().faults, 1);
  EXPECT_EQ(session_->counters().payloads_dropped, 1);
}

TEST_F(SessionTest, ADeadDeviceHoldsUpTheQueueOnce) {
  options_.reading_bound = absl::Milliseconds(200);
  fake_.Start();
  Open();
  const absl::Time start = absl::Now();
  for (uint32_t i = 0; i < 100; ++i) EmitPending(0, i, std::make_shared<ToldReading>(i));
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_LT(absl::Now() - start, absl::Seconds(10)) << "a hundred bounds would be twenty seconds";
  EXPECT_EQ(Leaves(fake_.batches()).size(), 100);
  EXPECT_EQ(session_->counters().faults, 100);
  const auto alive = std::make_shared<ToldReading>(7);
  alive->Become(PendingReading::State::kCame);
  EmitPending(0, 100, alive);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(Leaves(fake_.batches()).back(), (LeafSeen{100, 7, false}));
}

TEST_F(SessionTest, CloseGoesWithoutReadingsThatDoNotCome) {
  fake_.Start();
  Open();
  EmitPending(0, 0, std::make_shared<ToldReading>(1));
  Emit(0, 1);
  EXPECT_TRUE(session_->Close(true, absl::Seconds(2)).ok());
  EXPECT_THAT(Leaves(fake_.batches()), ElementsAre(LeafSeen{0, -1, true}, LeafSeen{1, 1, false}));
}

TEST_F(SessionTest, PayloadsMayLieInMemoryOfOthers) {
  options_.memory_ceiling_bytes = 1024;
  options_.loss_policy = LossPolicy::kDrop;
  fake_.Start();
  Open();
  std::array<std::byte, 16> memory{};
  const auto lend = [&](size_t size) {
    return size <= memory.size() ? std::shared_ptr<std::byte>(memory.data(), [](std::byte*) {}) : nullptr;
  };
  std::shared_ptr<Payload> payload = session_->AllocatePayload(16, lend);
  ASSERT_NE(payload, nullptr);
  EXPECT_EQ(payload->bytes().data(), memory.data());
  EXPECT_EQ(payload->bytes().size(), 16);
  EXPECT_EQ(session_->AllocatePayload(17, lend), nullptr);
  payload.reset();
  EXPECT_NE(session_->AllocatePayload(1000), nullptr) << "what was given back or never given is not charged";
}

TEST_F(SessionTest, CloseIsBoundedWithoutAServer) {
  Open();
  Emit(0, 0);
  const absl::Time began = absl::Now();
  EXPECT_EQ(session_->Close(true, absl::Milliseconds(200)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(absl::Now() - began, absl::Seconds(10));
  EXPECT_TRUE(session_->Close(true, absl::Milliseconds(200)).ok());
  Emit(0, 1);
  session_->EndStep(0);
}

TEST_F(SessionTest, ASessionThatSaysNothingDoesNotConnect) {
  fake_.Start();
  Open();
  EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_TRUE(session_->Close(true, absl::Seconds(20)).ok());
  EXPECT_EQ(fake_.streams(), 0);
}

TEST_F(SessionTest, RefusesWhatCannotWork) {
  SessionOptions options = options_;
  options.run = "";
  EXPECT_EQ(Session::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = options_;
  options.server = "nowhere";
  EXPECT_EQ(Session::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.server = "";
  options.settings.dump_path = "/proc/nothing/here";
  EXPECT_EQ(Session::Open(options).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SessionTest, AForkedChildLeavesTheParentAlone) {
  fake_.Start();
  Open();
  Emit(0, 0);
  const pid_t child = fork();
  if (child == 0) {
    session_->Abandon();
    Emit(0, 100);
    session_->EndStep(0);
    const bool quiet = session_->counters().fragments_emitted == 0;
    session_.reset();
    _exit(quiet ? 0 : 1);
  }
  int result = -1;
  waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
  Emit(0, 1);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectCounts(0, 2);
}

}  // namespace
}  // namespace msprobe::core
