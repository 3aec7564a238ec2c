#include "agent/core/transport/outbox/held_batches.h"

#include <unistd.h>

#include <filesystem>

#include "agent/core/str_cat.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

class HeldBatchesTest : public ::testing::Test {
 protected:
  HeldBatchesTest()
      : directory_(std::filesystem::temp_directory_path() / Cat("core-held-batches-", getpid())),
        budget_(1 << 20, LossPolicy::kSpool, absl::ZeroDuration(), nullptr),
        spool_(directory_, "s", 1 << 16),
        held_(&budget_, &spool_, SessionMemory::Private()) {}
  ~HeldBatchesTest() override { std::filesystem::remove_all(directory_); }

  void Append(uint64_t sequence, std::vector<std::string> announced_first = {}) {
    PackedBatch batch;
    batch.sequence = sequence;
    batch.bytes = Cat("bytes of ", sequence);
    batch.last_entry = sequence * 10;
    batch.first_step = static_cast<uint32_t>(sequence) + 100;
    batch.fragments = sequence + 1000;
    held_.Append(batch, std::move(announced_first));
  }

  const std::filesystem::path directory_;
  MemoryBudget budget_;
  Spool spool_;
  HeldBatches held_;
};

TEST_F(HeldBatchesTest, HoldsUntilDurable) {
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Append(sequence);
  EXPECT_EQ(held_.last_sequence(), 3);
  held_.Acknowledge(2);
  EXPECT_EQ(held_.freed_through(), 2);
  EXPECT_EQ(held_.SequenceOfEntry(20), 2) << "it is durable";
  EXPECT_EQ(held_.Read(3)->view, "bytes of 3");
  held_.Acknowledge(1);
  EXPECT_EQ(held_.freed_through(), 2);
  held_.Acknowledge(99);
  EXPECT_EQ(held_.freed_through(), 3);
  EXPECT_EQ(budget_.used(), 0);
}

TEST_F(HeldBatchesTest, ABatchMayBeReplaced) {
  Append(1);
  held_.SpillOldest();
  held_.Replace(1, "other");
  EXPECT_EQ(held_.Read(1)->view, "other");
  held_.Acknowledge(1);
  EXPECT_EQ(budget_.used(), 0);
  EXPECT_EQ(spool_.held_bytes(), 0);
}

TEST_F(HeldBatchesTest, EntriesMapToTheBatchThatHoldsThem) {
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Append(sequence);
  EXPECT_EQ(held_.SequenceOfEntry(0), 0);
  EXPECT_EQ(held_.SequenceOfEntry(10), 1);
  EXPECT_EQ(held_.SequenceOfEntry(11), 2);
  held_.Acknowledge(2);
  EXPECT_EQ(held_.SequenceOfEntry(5), 2);
  EXPECT_EQ(held_.SequenceOfEntry(30), 3);
}

TEST_F(HeldBatchesTest, AReplacedBatchKeepsItsSummary) {
  Append(1, {"a hash"});
  held_.Replace(1, "other");
  EXPECT_EQ(held_.SummaryOf(1).first_step, 101u);
  EXPECT_EQ(held_.SummaryOf(1).fragments, 1001u);
  EXPECT_EQ(*held_.AnnouncedByOldest(), std::vector<std::string>{"a hash"});
}

TEST_F(HeldBatchesTest, SpillsTheOldestFirstAndNamesWhatItAnnounced) {
  EXPECT_EQ(held_.AnnouncedByOldest(), nullptr);
  Append(1, {"first"});
  Append(2, {"second"});
  EXPECT_EQ(held_.InMemory(false), 2u);
  EXPECT_EQ(held_.AnnouncedByOldest()->front(), "first");
  ASSERT_TRUE(held_.SpillOldest());
  EXPECT_EQ(held_.AnnouncedByOldest()->front(), "second");
  EXPECT_EQ(held_.InMemory(false), 1u);
  EXPECT_EQ(held_.Read(1)->view, "bytes of 1");
}

TEST_F(HeldBatchesTest, KnowsItsKeysInTheSpool) {
  EXPECT_EQ(HeldBatches::SequenceOfKey("batch 12"), 12u);
  EXPECT_EQ(HeldBatches::SequenceOfKey("batch x"), std::nullopt);
  EXPECT_EQ(HeldBatches::SequenceOfKey("0123456789abcdef"), std::nullopt);
}

TEST_F(HeldBatchesTest, AMissingBatchIsRestoredWithoutBytes) {
  HeldBatches::Left left{.spooled = {}, .pieces = {}, .freed_through = 3, .cut_through = 5, .last_entry = 50};
  left.spooled.push_back({5, *spool_.Append("batch 5", "bytes"), {}});
  ASSERT_TRUE(held_.Restore(std::move(left)).ok());
  EXPECT_EQ(held_.last_sequence(), 5u);
  EXPECT_EQ(held_.Read(4).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(held_.Read(5)->view, "bytes");
}

TEST_F(HeldBatchesTest, RefusesToMissMoreThanCanHaveBeenThere) {
  HeldBatches::Left left{
      .spooled = {}, .pieces = {}, .freed_through = 1, .cut_through = uint64_t{1} << 40, .last_entry = 0};
  EXPECT_EQ(held_.Restore(std::move(left)).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace msprobe::core
