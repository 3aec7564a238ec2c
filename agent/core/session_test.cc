#include "agent/core/session.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "agent/core/doorbell.h"
#include "agent/core/session_fixture.h"
#include "agent/core/transport/outbox/spool.h"

namespace msprobe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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
    absl::SleepFor(absl::Milliseconds(5));  // lets streams end between rounds; without it few do, and nothing is tested
  }
  ASSERT_TRUE(session_->Wait(absl::Seconds(60)).ok());
  ExpectCounts(0, count);
  EXPECT_GT(fake_.streams(), 3);
  EXPECT_EQ(fake_.payloads().size(), 40);
}

// A server may receive what was sent over a broken stream after the next stream has begun.
TEST_F(SessionTest, BatchesThatArriveByAFormerStreamAreNotSentAgain) {
  fake_.Set({.bytes_per_second = 100'000, .overtaken = 3});  // slow: the answer comes before the second batch goes
  Open();
  uint32_t count = 0;
  uint64_t held = 0;
  while (held < 6) {
    for (int i = 0; i < 500; ++i) Emit(0, count++);
    ASSERT_LT(count, 1'000'000u);
    const std::string said = Missing();
    const size_t end = std::min(said.find(" batches"), said.size());
    const size_t begin = said.find_last_not_of("0123456789", end - 1) + 1;
    (void)absl::SimpleAtoi(said.substr(begin, end - begin), &held);
  }
  fake_.Start();
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(session_->counters().fragments_dropped, 0u);
  std::vector<uint64_t> sequences;
  for (const v1::Batch& batch : fake_.batches()) sequences.push_back(batch.batch_sequence());
  std::vector<uint64_t> sent(sequences.back() - 3);  // 1, 5, 6 and so on
  std::iota(sent.begin(), sent.end(), 4);
  sent.front() = 1;
  EXPECT_EQ(sequences, sent);
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

TEST_F(SessionTest, DropPolicyCountsExactlyWhatIsMissing) {
  options_.loss_policy = LossPolicy::kDrop;
  options_.memory_ceiling_bytes = 200'000;
  Open();
  constexpr uint32_t kEmitted = 20'000;
  const absl::Time began = absl::Now();
  ::testing::internal::CaptureStdout();
  for (uint32_t i = 0; i < kEmitted; ++i) Emit(i / 10'000, i);
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_LT(absl::Now() - began, absl::Seconds(20));
  const size_t told = log.find("records are left out, from step 0 on");
  EXPECT_NE(told, std::string::npos) << log;
  EXPECT_EQ(log.find("records are left out", told + 1), std::string::npos) << "it is said once";
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
  EXPECT_TRUE(Spool::Names(options_.spool_directory).empty());
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
  ASSERT_FALSE(Spool::Names(options_.spool_directory).empty());

  Open();  // there is no server: looking for one loses nothing
  session_.reset();
  ASSERT_FALSE(Spool::Names(options_.spool_directory).empty());

  fake_.Start();
  Open();
  EXPECT_TRUE(Eventually([&] { return Spool::Names(options_.spool_directory).empty(); }));
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

TEST_F(SessionTest, ASpoolThatTakesNothingIsToldOnceAndAtOnce) {
  constexpr std::string_view kTold = "the spool takes nothing: ";
  const auto told = [&](const std::string& printed) {
    size_t count = 0;
    for (size_t at = printed.find(kTold); at != std::string::npos; at = printed.find(kTold, at + 1)) ++count;
    return count;
  };
  options_.spool_directory += "/spool";
  options_.session_memory = "off";
  std::ofstream(std::filesystem::path(options_.spool_directory).parent_path()) << "a file in its place";
  options_.memory_ceiling_bytes = 300'000;
  options_.stall_bound = absl::ZeroDuration();
  ::testing::internal::CaptureStdout();
  Open();
  const std::string at_start = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(told(at_start), 1);
  EXPECT_NE(at_start.find("is not a directory"), std::string::npos) << at_start;
  ::testing::internal::CaptureStdout();
  for (uint32_t i = 0; session_->counters().fragments_dropped < 100 && i < 1'000'000; ++i) Emit(0, i);
  EXPECT_EQ(told(::testing::internal::GetCapturedStdout()), 0);

  std::filesystem::remove(std::filesystem::path(options_.spool_directory).parent_path());
  options_.spool_quota_bytes = 1'000;
  ::testing::internal::CaptureStdout();
  Open();
  uint32_t emitted = 0;
  EXPECT_TRUE(Eventually([&] {
    for (int i = 0; i < 1000; ++i) Emit(0, emitted++);
    return session_->counters().faults > 0;
  }));
  const std::string when_full = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(told(when_full), 1) << when_full;
  EXPECT_NE(when_full.find("is full: 1000 bytes"), std::string::npos) << when_full;
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
  session_->EndStep(5);  // nothing was captured in this step, so there is nothing to wait for
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

TEST_F(SessionTest, AServerThatIsGoneBeforeItExportedIsLookedForAgain) {
  fake_.Start();
  fake_.Set({.exports = true});
  Open();
  Emit(3, 0);
  session_->ExportOpenStep(3);  // this server does not answer
  ASSERT_TRUE(Eventually(
      [&] { return absl::StrContains(session_->Wait(absl::Milliseconds(10)).message(), "not exported: step 3"); }));
  const size_t hellos = fake_.hellos().size();
  fake_.Stop();
  fake_.Start();
  EXPECT_TRUE(Eventually([&] { return fake_.hellos().size() > hellos; }));
}

TEST_F(SessionTest, WhatAServerLostBeforeItExportedIsSaidOnceAndIsNoCauseToConnect) {
  fake_.Start();
  fake_.Set({.export_waits = true});
  Open();
  Emit(3, 0);
  session_->EndStep(3);
  ASSERT_TRUE(Eventually([&] { return Missing() == "not exported: step 3"; }));
  fake_.Stop();
  fake_.Forget();
  ::testing::internal::CaptureStdout();
  fake_.Start();
  const absl::Status lost = session_->Wait(absl::Seconds(20));
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("there are no files of step 3"));
  EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok()) << "it is said to one wait";
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("[ERROR] msprobe: the server lost"));
  EXPECT_THAT(log, Not(HasSubstr("dump.json is at")));
  EXPECT_THAT(Markers(fake_.batches()), IsEmpty()) << "there is no step that the gap would belong to yet";

  fake_.Stop();
  ASSERT_TRUE(Eventually([&] { return !session_->counters().connected; }));
  fake_.Start();
  const size_t hellos = fake_.hellos().size();
  EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());  // a round of the sender, which would connect if it had to
  EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_EQ(fake_.hellos().size(), hellos);
  fake_.Set({.exports = true});
  Emit(4, 1);
  session_->EndStep(4);
  EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_THAT(fake_.hellos().back().awaited_exports(), ElementsAre(4));
  ASSERT_FALSE(Markers(fake_.batches()).empty());
  EXPECT_EQ(Markers(fake_.batches()).front().gap().reason(), v1::Marker::Gap::SERVER_LOST);
  EXPECT_EQ(Markers(fake_.batches()).front().gap().step(), 4u);
}

TEST_F(SessionTest, AWaitThatGoesOnReturnsAtOnceWhereTheServerLostTheStep) {
  fake_.Start();
  fake_.Set({.export_waits = true});
  Open();
  Emit(3, 0);
  session_->EndStep(3);
  bool restarted = false;
  const absl::Status lost = session_->Wait(absl::Seconds(60), [&](std::string_view missing) {
    if (missing != "not exported: step 3" || std::exchange(restarted, true)) return true;
    fake_.Stop();
    fake_.Forget();
    fake_.Start();
    return true;
  });
  EXPECT_TRUE(restarted);
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
}

TEST_F(SessionTest, TheEndOfAStepThatAServerLostComesWithTheGap) {
  fake_.Start();
  fake_.Set({.exports = true});
  Open();
  Emit(3, 0);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  fake_.Stop();
  fake_.Forget();
  session_->EndStep(3);
  EXPECT_THAT(Missing(), HasSubstr("not durable"));
  fake_.Start();
  EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  const std::vector<v1::Marker> markers = Markers(fake_.batches());
  ASSERT_EQ(markers.size(), 2u);
  EXPECT_EQ(markers[0].gap().reason(), v1::Marker::Gap::SERVER_LOST);
  EXPECT_EQ(markers[0].gap().step(), 3u) << "without it the server would not know the step that ends";
  EXPECT_EQ(markers[1].step_end().step(), 3u);
}

TEST_F(SessionTest, ATensorThatALostBatchAnnouncedIsNotWaitedFor) {
  fake_.Start();
  fake_.Set({.bytes_per_second = 1});
  Open();
  Emit(3, 0, MakePayload(1000, 1));  // after its batch nothing goes for minutes
  ASSERT_TRUE(Eventually([&] { return absl::StartsWith(Missing(), "1 tensors are not stored"); }));
  fake_.Stop();
  fake_.Forget();
  fake_.Set({});
  fake_.Start();
  EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
}

TEST_F(SessionTest, AnAlarmIsALineOfTheLogThatSaysWhereMoreIs) {
  fake_.Start();
  fake_.Set({.alarm_over = "loss"});
  options_.run = "my run";
  ::testing::internal::CaptureStdout();
  Open();
  Emit(0, 0);
  EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr(Cat(
                  "alarm 3 (not-finite): step 7, loss: it is nan. More of it: msprobe-client alarms 'my run' --server ",
                  fake_.address(), "\n")));
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
  // The session belongs to that server now, even if the server is gone for a while.
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

// A reading that arrives or fails when the test says so.
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

// The leaves of fragments that have one leaf each.
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
  // Fragments before the pending one are sent. Those after it, and the marker, keep their places.
  ASSERT_TRUE(Eventually([&] { return Leaves(fake_.batches()).size() == 1; }));
  EXPECT_THAT(Missing(), HasSubstr("from the device"));
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
    Emit(0, 100);
    session_->EndStep(0);
    const bool quiet = session_->counters().fragments_emitted == 0;
    session_.reset();
    const absl::Status own = Session::Open(options_).status();
    _exit(quiet && own.code() == absl::StatusCode::kFailedPrecondition ? 0 : 1);
  }
  int result = -1;
  waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
  Emit(0, 1);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectCounts(0, 2);
}

TEST_F(SessionTest, AForkedChildThatNobodyToldWritesNothingIntoTheParentsMemory) {
  Open();
  Emit(0, 0);
  const pid_t child = fork();
  if (child == 0) {
    for (uint32_t i = 0; i < 5000; ++i) Emit(0, 100 + i);
    session_->DefineStructure(Named("Torch.sub"));
    session_->EndStep(0);
    _exit(0);
  }
  int result = -1;
  waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
  Emit(0, 1);
  fake_.Start();
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectCounts(0, 2);
  EXPECT_TRUE(Markers(fake_.batches()).empty());
}

// Not under sanitizers: GCC 12's take no care of their own locks at a fork. A child that allocates waits for ever for
// the one around their stacks of allocations, where another thread had it.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
class ForkedChildTest : public SessionTest {
 protected:
  static constexpr int kChildren = 50;

  // How many of kChildren, one after another, emit and end a step to the end while a thread of the parent ends steps.
  int ChildrenThatEnd() {
    std::atomic<bool> goes_on{true};
    std::thread marks([&] {
      while (goes_on) session_->EndStep(0);
    });
    int ended = 0;
    for (; ended < kChildren; ++ended) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(20);  // where it waits for a lock, nobody is left to give it up
        Emit(0, 0);
        session_->EndStep(0);
        _exit(0);
      }
      int result = -1;
      waitpid(child, &result, 0);
      if (result != 0) break;
    }
    goes_on = false;
    marks.join();
    return ended;
  }
};

TEST_F(ForkedChildTest, ThatNobodyToldWaitsForNoLockOfAnotherThread) {
  fake_.Start();
  Open();
  EXPECT_EQ(ChildrenThatEnd(), kChildren);
}

TEST_F(ForkedChildTest, ThatNobodyToldWaitsForNoLockInAShortageOfMemory) {
  options_.loss_policy = LossPolicy::kStall;
  options_.memory_ceiling_bytes = 300'000;
  options_.stall_bound = absl::ZeroDuration();
  Open();
  for (uint32_t i = 0; session_->counters().fragments_dropped == 0; ++i) Emit(0, i);
  EXPECT_EQ(ChildrenThatEnd(), kChildren);
}
#endif

}  // namespace
}  // namespace msprobe::core
