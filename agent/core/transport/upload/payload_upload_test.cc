#include "agent/core/transport/upload/payload_upload.h"

#include <memory>

#include "agent/core/payload/payload_pool.h"
#include "agent/core/transport/sender_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// One a message, of at most ten bytes.
const ServerOffers kOneByOne = {.chunk_bytes = 10};
const ServerOffers kTogether = {.chunk_bytes = 10, .chunks = true};
const ServerOffers kMemory = {.chunk_bytes = size_t{1} << 20, .chunks = true, .memory = true};

class PayloadUploadTest : public SenderPartsTest {
 protected:
  // Holds a payload, under its content's first letter as hash.
  std::string Hold(const std::string& content, std::optional<uint64_t> shared_offset = std::nullopt) {
    auto payload = std::make_shared<TextPayload>(content);
    payload->shared_offset_ = shared_offset;
    payloads_by_hash_.push_back(payload);
    PackedBatch batch;
    batch.sequence = outbox_.batches().last_sequence() + 1;
    batch.bytes = "a batch";
    batch.payloads.push_back({content.substr(0, 1), payload});
    outbox_.Append(std::move(batch));
    return content.substr(0, 1);
  }

  void Want(const std::vector<std::string>& hashes) {
    v1::PayloadVerdict verdict;
    for (const std::string& hash : hashes) verdict.add_wanted(hash);
    upload_.Take(verdict);
  }
  void Stored(const std::string& hash) {
    v1::PayloadVerdict verdict;
    verdict.add_stored(hash);
    upload_.Take(verdict);
  }

  // The chunks of the next message, as hash, offset, content and an end mark; nothing: there is none.
  std::vector<std::string> Next(const ServerOffers& offers) {
    std::vector<std::string> chunks;
    upload_.SendNext(offers, [&](const grpc::ByteBuffer& buffer, size_t content) {
      const v1::AgentMessage message = Parsed(buffer);
      size_t bytes = 0;
      const auto add = [&](const v1::PayloadChunk& chunk) {
        bytes += chunk.content().size() + chunk.shared_size();
        const std::string where = chunk.shared_size() > 0 ? Cat("shared ", chunk.shared_offset()) : chunk.content();
        chunks.push_back(Cat(chunk.hash(), " ", chunk.offset(), " ", where, chunk.last() ? "." : ""));
      };
      if (message.has_payload_chunk()) add(message.payload_chunk());
      for (const v1::PayloadChunk& chunk : message.payload_chunks().chunk()) add(chunk);
      EXPECT_EQ(bytes, content);
      return true;
    });
    return chunks;
  }

  std::vector<std::shared_ptr<TextPayload>> payloads_by_hash_;
  PayloadUpload upload_{&parts_, &outbox_.payloads()};
};

TEST_F(PayloadUploadTest, SendsWhatIsWantedInTheOrderOfAskingChunkByChunk) {
  Hold("a234567890bc");
  Hold("b");
  EXPECT_THAT(Next(kOneByOne), IsEmpty()) << "nobody has asked";
  Want({"b", "a"});
  EXPECT_THAT(Next(kOneByOne), ElementsAre("b 0 b."));
  EXPECT_THAT(Next(kOneByOne), ElementsAre("a 0 a234567890"));
  EXPECT_THAT(Next(kOneByOne), ElementsAre("a 10 bc."));
  EXPECT_THAT(Next(kOneByOne), IsEmpty());
  EXPECT_TRUE(outbox_.payloads().Holds("a")) << "until the server has stored it";
  Stored("a");
  EXPECT_FALSE(outbox_.payloads().Holds("a"));
}

TEST_F(PayloadUploadTest, SmallChunksGoTogetherWhereTheServerTakesThat) {
  Hold("a");
  Hold("b234567890c");
  Want({"a", "b"});
  EXPECT_THAT(Next(kTogether), ElementsAre("a 0 a.", "b 0 b234567890", "b 10 c."));
}

TEST_F(PayloadUploadTest, APayloadIsSentOnceHoweverOftenItIsWanted) {
  Hold("a");
  Want({"a", "a"});
  Want({"a"});
  EXPECT_THAT(Next(kTogether), ElementsAre("a 0 a."));
  Want({"a"});
  EXPECT_THAT(Next(kTogether), IsEmpty());
  upload_.Forget();
  Want({"a"});
  EXPECT_THAT(Next(kTogether), ElementsAre("a 0 a.")) << "another stream knows nothing of this one";
}

TEST_F(PayloadUploadTest, WhatIsStoredMeanwhileIsNotSentOn) {
  Hold("a2345678901");
  Want({"a"});
  EXPECT_THAT(Next(kOneByOne), ElementsAre("a 0 a234567890"));
  Stored("a");
  EXPECT_THAT(Next(kOneByOne), IsEmpty());
}

TEST_F(PayloadUploadTest, WhatCannotBeGivenIsCounted) {
  Want({"x"});
  EXPECT_EQ(counters_.payloads_dropped, 1) << "nobody holds it";
  Hold("a");
  payloads_by_hash_.back()->intact_ = false;
  Want({"a"});
  EXPECT_THAT(Next(kTogether), IsEmpty());
  EXPECT_EQ(counters_.payloads_dropped, 2);
  EXPECT_FALSE(outbox_.payloads().Holds("a"));
}

TEST_F(PayloadUploadTest, APayloadInSharedMemoryIsNamedAndLent) {
  Hold(std::string(PayloadPool::kSmallestShared, 'a'), 4096);
  Want({"a"});
  EXPECT_THAT(Next(kMemory), ElementsAre("a 0 shared 4096."));
  EXPECT_TRUE(outbox_.payloads().IsLent("a"));
  // Asked for again: the server read something else there.
  Want({"a"});
  EXPECT_FALSE(outbox_.payloads().IsLent("a"));
  EXPECT_THAT(Next(kMemory), ElementsAre(Cat("a 0 ", std::string(PayloadPool::kSmallestShared, 'a'), ".")));
}

TEST_F(PayloadUploadTest, WhatIsLentStaysAPartOfTheCeiling) {
  const size_t third = budget_->ceiling() / 3;
  Hold(std::string(third, 'a'), 0);
  Hold(std::string(third, 'b'), 1 << 20);
  Want({"a", "b"});
  EXPECT_THAT(Next(kMemory), ElementsAre("a 0 shared 0."));
  EXPECT_THAT(Next(kMemory), IsEmpty());
  Stored("a");
  EXPECT_THAT(Next(kMemory), ElementsAre("b 0 shared 1048576."));
  upload_.Forget();
  EXPECT_EQ(outbox_.payloads().lent_bytes(), 0);
}

}  // namespace
}  // namespace msprobe::core
