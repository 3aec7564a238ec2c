#include "agent/core/transport/outbox/held_payloads.h"

#include "agent/core/payload/payload_pool.h"
#include "agent/core/transport/sender_fixture.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

class HeldPayloadsTest : public SenderPartsTest {
 protected:
  std::shared_ptr<TextPayload> Hold(const std::string& hash, const std::string& content, uint64_t sequence = 1) {
    auto payload = std::make_shared<TextPayload>(content);
    held_.Hold(hash, payload, sequence);
    return payload;
  }
  std::string Read(const std::string& hash) {
    const absl::StatusOr<HeldPayloads::Part> part = held_.Read(hash, 0, size_t{1} << 20);
    return part.ok() ? std::string(part->bytes) : std::string(part.status().message());
  }

  HeldPayloads held_{&spool_, SessionMemory::Private()};
};

TEST_F(HeldPayloadsTest, HoldsAPayloadOnceUnderItsFirstBatch) {
  EXPECT_TRUE(held_.Hold("a", std::make_shared<TextPayload>("content"), 1));
  EXPECT_FALSE(held_.Hold("a", std::make_shared<TextPayload>("content"), 2));
  EXPECT_EQ(held_.count(), 1u);
  EXPECT_EQ(held_.CountThrough(0), 0u);
  EXPECT_EQ(held_.CountThrough(1), 1u);
  held_.Release("a");
  EXPECT_FALSE(held_.Holds("a"));
  EXPECT_EQ(held_.Read("a", 0, 1).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(HeldPayloadsTest, AReconnectionReleasesWhatTheServerHas) {
  Hold("a", "1", 1), Hold("b", "2", 1), Hold("c", "3", 2);
  held_.ReleaseUnlessMissing(1, {"b"});
  EXPECT_FALSE(held_.Holds("a"));
  EXPECT_TRUE(held_.Holds("b"));
  EXPECT_TRUE(held_.Holds("c")) << "its batch is not durable";
}

TEST_F(HeldPayloadsTest, AChangedTensorIsNotSent) {
  Hold("a", "content")->intact_ = false;
  EXPECT_FALSE(held_.Intact("a"));
  EXPECT_EQ(held_.Read("a", 0, 1).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(HeldPayloadsTest, APayloadThatTheServerMisreadIsNotSharedAgain) {
  Hold("a", std::string(PayloadPool::kSmallestShared, 'a'))->shared_offset_ = 4096;
  EXPECT_EQ(held_.Read("a", 8, 8)->shared_offset, 4104u);
  held_.Lend("a");
  EXPECT_TRUE(held_.IsLent("a"));
  EXPECT_EQ(held_.lent_bytes(), PayloadPool::kSmallestShared);
  held_.EndLending("a");
  EXPECT_EQ(held_.lent_bytes(), 0u);
  EXPECT_EQ(held_.Read("a", 8, 8)->shared_offset, std::nullopt);
}

TEST_F(HeldPayloadsTest, ALentPayloadIsNotSpilled) {
  Hold("a", "content");
  held_.Lend("a");
  EXPECT_TRUE(held_.Spill("a"));
  EXPECT_EQ(spool_.held_bytes(), 0u);
  EXPECT_EQ(held_.InMemory(false), 1u);
  held_.EndLending();
  EXPECT_TRUE(held_.SpillAll());
  EXPECT_EQ(held_.InMemory(false), 0u);
  EXPECT_EQ(Read("a"), "content");
}

TEST_F(HeldPayloadsTest, TakesOverWhatIsSpooled) {
  const Spool::Found first{"a", *spool_.Append("a", "content")}, again{"a", *spool_.Append("a", "content")};
  EXPECT_TRUE(held_.HoldSpooled(first));
  EXPECT_FALSE(held_.HoldSpooled(again));
  held_.SetAnnounced({"a"}, 7);
  EXPECT_EQ(held_.CountThrough(6), 0u);
  EXPECT_EQ(held_.CountThrough(7), 1u);
  EXPECT_EQ(Read("a"), "content");
  held_.Release("a");
  EXPECT_EQ(spool_.held_bytes(), 0u);
}

}  // namespace
}  // namespace msprobe::core
