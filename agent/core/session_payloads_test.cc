// Tests how a Session sends payloads: in messages, several in one message, and by shared memory.

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "agent/core/payload/shared_file.h"
#include "agent/core/session_fixture.h"
#include "agent/core/transport/sender.h"

namespace msprobe::core {
namespace {

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
    const auto file = SharedFile::Create(Cat(SharedFile::kDirectory, "/msprobe-room-", getpid()), size_t{1} << 20);
    if (!file.ok() || (*file)->Allocate(1 << 20, SharedFile::Use::kPayloads).empty()) {
      GTEST_SKIP() << "no room in " << SharedFile::kDirectory;
    }
  }

  // Each payload has 1,000,000 bytes.
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

TEST_F(SharedMemoryTest, ThoseOfTaskCheckAreReadToo) {
  fake_.Start();
  fake_.Set({.reads_memory = true});
  options_.settings.task = "check";
  Open();
  EmitPayloads(0, 5);
  ASSERT_TRUE(session_->Wait(absl::Seconds(20)).ok());
  ExpectPayloads(5);
  EXPECT_EQ(fake_.shared_chunks(), 5);
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

}  // namespace
}  // namespace msprobe::core
