#include "server/ingest/payload/payload_intake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/ingest/session/fake_session.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

v1::PayloadChunk& Add(v1::AgentMessage& message, const std::string& hash, const std::string& content) {
  v1::PayloadChunk& chunk = *message.mutable_payload_chunks()->add_chunk();
  chunk.set_hash(hash);
  chunk.set_content(content);
  chunk.set_last(true);
  return chunk;
}

class PayloadIntakeTest : public testing::Test {
 protected:
  absl::Status Take() { return intake_.Take(session_, message_, verdict_); }

  Metrics metrics_;
  FakeSession session_;
  PayloadIntake intake_{nullptr, 1000, &metrics_};
  v1::AgentMessage message_;
  v1::PayloadVerdict verdict_;
};

TEST_F(PayloadIntakeTest, WholePayloadsOfAMessageAreWrittenTogether) {
  for (const char* hash : {"a", "b", "c"}) Add(message_, hash, "content");
  ASSERT_TRUE(Take().ok());
  EXPECT_THAT(session_.wholes, ElementsAre("a=content", "b=content", "c=content"));
  EXPECT_EQ(session_.writes, 1);
  EXPECT_THAT(verdict_.stored(), ElementsAre("a", "b", "c"));
}

TEST_F(PayloadIntakeTest, PartsOfAPayloadComeOneByOneBetweenWholeOnes) {
  Add(message_, "a", "whole");
  Add(message_, "b", "first").set_last(false);
  Add(message_, "b", "second").set_offset(5);
  Add(message_, "c", "whole");
  ASSERT_TRUE(Take().ok());
  EXPECT_THAT(session_.wholes, ElementsAre("a=whole", "c=whole"));
  EXPECT_THAT(session_.chunks, ElementsAre("b=first", "b=second"));
  EXPECT_THAT(verdict_.stored(), ElementsAre("a", "b", "c"));
}

TEST_F(PayloadIntakeTest, OneWithAnotherHashStaysMissingAndTheOthersGoOn) {
  session_.bad = "b";
  for (const char* hash : {"a", "b", "c"}) Add(message_, hash, "content");
  ASSERT_TRUE(Take().ok());
  EXPECT_THAT(verdict_.stored(), ElementsAre("a", "c"));
  EXPECT_THAT(verdict_.wanted(), IsEmpty()) << "it came in a message: the agent has nothing else";
}

TEST_F(PayloadIntakeTest, TheAgentHearsOfThoseBeforeARefusedOne) {
  session_.bad = "b";
  session_.refusal = absl::ResourceExhaustedError("the disk is full");
  for (const char* hash : {"a", "b", "c"}) Add(message_, hash, "content");
  EXPECT_EQ(Take().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(verdict_.stored(), ElementsAre("a"));
}

TEST_F(PayloadIntakeTest, MoreChunksThanAMessageMayHaveAreRefused) {
  for (int i = 0; i < 257; ++i) Add(message_, "a", "content");
  const absl::Status status = Take();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("257 chunks, at most 256"));
}

TEST_F(PayloadIntakeTest, SharedMemoryThatTheAgentDoesNotHaveIsRefused) {
  Add(message_, "a", "").set_shared_size(10);
  const absl::Status status = Take();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("payload_chunk.shared_size is 10"));
}

}  // namespace
}  // namespace msprobe::server
