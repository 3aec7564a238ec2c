#include "agent/core/transport/outbox/outbox.h"

#include <unistd.h>

#include <filesystem>

#include "agent/core/str_cat.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

class BudgetedPayload : public Payload {
 public:
  BudgetedPayload(std::string content, MemoryBudget* budget) : content_(std::move(content)), budget_(budget) {
    budget_->Charge(content_.size());
  }
  ~BudgetedPayload() override { budget_->Release(content_.size()); }
  std::span<std::byte> bytes() override { return std::as_writable_bytes(std::span(content_)); }

 private:
  std::string content_;
  MemoryBudget* const budget_;
};

class OutboxTest : public ::testing::Test {
 protected:
  OutboxTest()
      : directory_(std::filesystem::temp_directory_path() / Cat("core-outbox-", getpid())),
        budget_(1 << 20, LossPolicy::kSpool, absl::ZeroDuration(), nullptr),
        spool_(directory_, "s", 1 << 16),
        outbox_(&budget_, &spool_) {}
  ~OutboxTest() override { std::filesystem::remove_all(directory_); }

  void Append(uint64_t sequence, const std::vector<std::string>& payloads = {}) {
    PackedBatch batch;
    batch.sequence = sequence;
    batch.bytes = Cat("bytes of ", sequence);
    batch.last_entry = sequence * 10;
    for (const std::string& content : payloads) {
      batch.payloads.push_back(
          {"hash of " + content.substr(0, 10), std::make_shared<BudgetedPayload>(content, &budget_)});
    }
    outbox_.Append(std::move(batch));
  }

  const std::filesystem::path directory_;
  MemoryBudget budget_;
  Spool spool_;
  Outbox outbox_;
};

TEST_F(OutboxTest, EqualContentIsHeldOnceUntilStored) {
  Append(1, {"content"});
  const size_t used = budget_.used();
  Append(2, {"content"});
  EXPECT_LT(budget_.used(), used + std::string("content").size() + 20);
  EXPECT_EQ(outbox_.payloads().count(), 1);
  EXPECT_EQ(outbox_.payloads().CountThrough(1), 1);
  outbox_.batches().Acknowledge(2);
  EXPECT_EQ(outbox_.payloads().Read("hash of content", 0, 1 << 20)->bytes, "content");
  outbox_.payloads().Release("hash of content");
  EXPECT_EQ(budget_.used(), 0);
  EXPECT_EQ(outbox_.payloads().Read("hash of content", 0, 1 << 20).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(OutboxTest, SpilledOnesAreOutOfMemoryAndComeBackAsTheyWere) {
  Append(1, {"one"});
  Append(2, {"one", "two"});
  EXPECT_TRUE(outbox_.SpillOldest());
  EXPECT_TRUE(outbox_.SpillOldest());
  EXPECT_FALSE(outbox_.SpillOldest());
  EXPECT_EQ(budget_.used(), 0);
  EXPECT_EQ(outbox_.batches().Read(1)->view, "bytes of 1");
  EXPECT_EQ(outbox_.batches().Read(2)->view, "bytes of 2");
  EXPECT_EQ(outbox_.payloads().Read("hash of two", 0, 1 << 20)->bytes, "two");
  EXPECT_EQ(outbox_.payloads().Read("hash of two", 0, 2)->bytes, "tw");
  EXPECT_FALSE(outbox_.payloads().Read("hash of two", 0, 2)->last);
  EXPECT_EQ(outbox_.payloads().Read("hash of two", 2, 2)->bytes, "o");
  EXPECT_TRUE(outbox_.payloads().Read("hash of two", 2, 2)->last);
  Append(3);
  EXPECT_EQ(outbox_.batches().Read(3)->view, "bytes of 3");
  outbox_.batches().Acknowledge(3);
  outbox_.payloads().ReleaseUnlessMissing(3, {"hash of two"});
  EXPECT_FALSE(outbox_.payloads().Holds("hash of one"));
  EXPECT_TRUE(outbox_.payloads().Holds("hash of two"));
  outbox_.payloads().Release("hash of two");
  EXPECT_EQ(spool_.held_bytes(), 0);
}

TEST_F(OutboxTest, AFullSpoolKeepsTheRestInMemory) {
  Append(1, {std::string(40'000, 'a')});
  Append(2, {std::string(40'000, 'b')});
  EXPECT_TRUE(outbox_.SpillOldest());
  EXPECT_FALSE(outbox_.SpillOldest());
  EXPECT_TRUE(spool_.full());
  EXPECT_EQ(outbox_.payloads().Read("hash of " + std::string(10, 'b'), 0, 1 << 20)->bytes.size(), 40'000);
  outbox_.batches().Acknowledge(1);
  outbox_.payloads().Release("hash of " + std::string(10, 'a'));
  EXPECT_FALSE(spool_.full());
  EXPECT_TRUE(outbox_.SpillOldest());
}

TEST_F(OutboxTest, WhatIsRestoredIsDurableWithItsLastBatch) {
  std::vector<Spool::Found> found;
  for (int sequence = 4; sequence <= 6; ++sequence) {
    for (const std::string& key : {Cat("hash ", sequence), Cat("batch ", sequence)}) {
      found.push_back({key, *spool_.Append(key, "content")});
    }
  }
  ASSERT_TRUE(outbox_.Restore({.spooled = found, .last_entry = 1}).ok());
  EXPECT_EQ(outbox_.batches().last_sequence(), 6);
  EXPECT_EQ(outbox_.batches().SequenceOfEntry(1), 6);
  outbox_.batches().Acknowledge(4);
  EXPECT_EQ(outbox_.batches().SequenceOfEntry(1), 6) << "two more are to be sent";
  EXPECT_EQ(outbox_.payloads().CountThrough(6), 3);
}

TEST_F(OutboxTest, WhatIsLentStaysInMemoryUntilItIsStoredOrLendingEnds) {
  Append(1, {"first", "second"});
  outbox_.payloads().Lend("hash of first");
  outbox_.payloads().Lend("hash of first");
  EXPECT_EQ(outbox_.payloads().lent_bytes(), 5u);
  EXPECT_TRUE(outbox_.SpillOldest());
  EXPECT_EQ(budget_.used(), 5u) << "the second and the batch are on disk";
  EXPECT_EQ(outbox_.payloads().Read("hash of first", 0, 10)->bytes, "first");
  outbox_.payloads().Release("hash of first");
  EXPECT_EQ(outbox_.payloads().lent_bytes(), 0u);
  EXPECT_EQ(budget_.used(), 0u);

  Append(2, {"third"});
  outbox_.payloads().Lend("hash of third");
  EXPECT_TRUE(outbox_.payloads().IsLent("hash of third"));
  outbox_.payloads().EndLending();
  EXPECT_EQ(outbox_.payloads().lent_bytes(), 0u);
  EXPECT_FALSE(outbox_.payloads().IsLent("hash of third"));
  EXPECT_TRUE(outbox_.SpillAll());
  EXPECT_EQ(budget_.used(), 0u);
}

TEST_F(OutboxTest, AtTheEndWhatIsLentIsSpilledToo) {
  Append(1, {"first"});
  outbox_.payloads().Lend("hash of first");
  EXPECT_TRUE(outbox_.SpillAll());
  EXPECT_EQ(budget_.used(), 0u);
  EXPECT_EQ(outbox_.payloads().Read("hash of first", 0, 10)->bytes, "first");
}

}  // namespace
}  // namespace msprobe::core
