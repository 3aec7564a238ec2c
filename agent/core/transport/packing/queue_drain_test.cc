#include "agent/core/transport/packing/queue_drain.h"

#include "agent/core/transport/sender_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr milliseconds kLinger(500);
constexpr absl::Duration kReadingBound = absl::Seconds(30);

class ToldReading : public PendingReading {
 public:
  State state() const override { return state_; }
  void RingWhenDone(std::shared_ptr<Doorbell>) override {}
  void Complete(Leaf& leaf) override { leaf.has_statistics = true; }

  State state_ = State::kUnderWay;
};

// Says when it is freed.
class ToldPayload : public TextPayload {
 public:
  ToldPayload(std::string content, std::function<void()> freed)
      : TextPayload(std::move(content)), freed_(std::move(freed)) {}
  ~ToldPayload() override { freed_(); }

 private:
  const std::function<void()> freed_;
};

class QueueDrainTest : public SenderPartsTest {
 protected:
  void Append(uint32_t count, std::shared_ptr<PendingReading> pending = nullptr, uint32_t step = 0,
              std::shared_ptr<Payload> payload = nullptr) {
    Leaf leaf;
    leaf.pending = std::move(pending);
    leaf.payload = std::move(payload);
    Fragment fragment;
    fragment.step = step;
    fragment.structure = with_tensor_;
    fragment.count = count;
    fragment.leaves = std::span(&leaf, 1);
    ASSERT_EQ(budget_->Acquire(EncodedSize(fragment)), MemoryBudget::Outcome::kGranted);
    queue_.Append(fragment);
  }

  void AppendStepEnd(uint32_t step) {
    v1::Marker marker;
    marker.mutable_step_end()->set_step(step);
    queue_.AppendMarker(marker);
  }

  // All records in the outbox, and whether they are marked as faults.
  std::vector<std::pair<uint32_t, bool>> Packed() {
    std::vector<std::pair<uint32_t, bool>> found;
    for (uint64_t sequence = 1; sequence <= outbox_.batches().last_sequence(); ++sequence) {
      v1::AgentMessage message;
      const absl::StatusOr<HeldBatches::Bytes> bytes = outbox_.batches().Read(sequence);
      EXPECT_TRUE(bytes.ok() && message.ParseFromArray(bytes->view.data(), static_cast<int>(bytes->view.size())));
      for (const v1::Item& item : message.batch().items()) {
        for (int i = 0; i < item.block().count_size(); ++i) {
          found.emplace_back(item.block().count(i), (item.block().fragment_flags(i) & kFault) != 0);
        }
      }
    }
    return found;
  }

  const QueueDrain::Clock::time_point now_ = QueueDrain::Clock::now();
  std::vector<std::string> told_;
  QueueDrain drain_{&parts_,
                    &packer_,
                    &outbox_,
                    kReadingBound,
                    [this](const v1::Marker& marker) {
                      told_.push_back(Cat("marker ", static_cast<int>(marker.kind_case()), " of open step ",
                                          drain_.open_step().value_or(99), " at ", drain_.packed_entries()));
                    },
                    [this] { told_.push_back(Cat("batch ", outbox_.batches().last_sequence())); }};
};

TEST_F(QueueDrainTest, WhatCameALittleWhileAgoWaitsForOthersToJoinItsBatch) {
  Append(1);
  const QueueDrain::Clock::time_point again = drain_.Drain(now_, kLinger);
  EXPECT_THAT(Packed(), IsEmpty());
  EXPECT_GE(again, now_ + kLinger);
  Append(2);
  drain_.Drain(again, kLinger);
  EXPECT_THAT(Packed(), ElementsAre(std::pair(1, false), std::pair(2, false)));
  EXPECT_THAT(told_, ElementsAre("batch 1"));
}

TEST_F(QueueDrainTest, AMarkerGoesAtOnceAndIsToldWithTheStepThatItEnds) {
  Append(1, nullptr, 4);
  AppendStepEnd(4);
  drain_.Drain(now_, kLinger);
  EXPECT_THAT(told_,
              ElementsAre(Cat("marker ", static_cast<int>(v1::Marker::kStepEnd), " of open step 4 at 2"), "batch 1"));
  EXPECT_EQ(drain_.open_step(), std::nullopt);
  EXPECT_EQ(drain_.packed_entries(), 2);
}

TEST_F(QueueDrainTest, ARecordBehindTheEndOfItsStepKeepsNothingFromTheServer) {
  Append(1, nullptr, 4);
  AppendStepEnd(4);
  Append(2, nullptr, 4, std::make_shared<TextPayload>("late"));
  Append(3, nullptr, 5);
  AppendStepEnd(5);
  Append(4, nullptr, 4);
  Append(5, nullptr, 5);
  Append(6, nullptr, 6);
  queue_.Flush();
  drain_.Drain(now_, kLinger);
  EXPECT_THAT(Packed(), ElementsAre(std::pair(1, false), std::pair(3, false), std::pair(6, false)));
  EXPECT_EQ(drain_.open_step(), 6);
  EXPECT_EQ(drain_.packed_entries(), 8);
  outbox_.batches().Acknowledge(outbox_.batches().last_sequence());
  EXPECT_EQ(budget_->used(), 0);
}

TEST_F(QueueDrainTest, MemoryOfTheQueueIsGivenBackOnceItIsInABatch) {
  Append(1);
  const auto reading = std::make_shared<ToldReading>();
  Append(2, reading);
  const size_t charged = budget_->used();
  queue_.Flush();
  drain_.Drain(now_, kLinger);
  EXPECT_GE(budget_->used(), charged) << "the chunk still holds a record that is in no batch";
  reading->state_ = PendingReading::State::kCame;
  drain_.Drain(now_, kLinger);
  outbox_.batches().Acknowledge(outbox_.batches().last_sequence());
  EXPECT_EQ(budget_->used(), 0);
}

TEST_F(QueueDrainTest, NoPayloadIsFreedBeforeTheBatchOfItsRecord) {
  // The last batch when each was freed. The outbox, which outlives this test's body, frees its own later.
  const auto freed_at = std::make_shared<std::vector<uint64_t>>();
  const auto payload = [&freed_at, batches = &outbox_.batches()](std::string content) {
    return std::make_shared<ToldPayload>(std::move(content),
                                         [freed_at, batches] { freed_at->push_back(batches->last_sequence()); });
  };
  const auto lost = std::make_shared<ToldReading>();
  lost->state_ = PendingReading::State::kLost;
  Append(1, nullptr, 0, payload("held"));
  Append(2, nullptr, 0, payload("held"));  // the outbox needs one of them
  Append(3, lost, 0, payload("its reading is lost"));
  Fragment misfit;
  Leaf leaf;
  leaf.payload = payload("its record does not fit");
  misfit.structure = structure_;
  misfit.leaves = std::span(&leaf, 1);
  ASSERT_EQ(budget_->Acquire(EncodedSize(misfit)), MemoryBudget::Outcome::kGranted);
  queue_.Append(misfit);
  leaf.payload.reset();
  queue_.Flush();
  EXPECT_THAT(*freed_at, IsEmpty());
  drain_.Drain(now_, kLinger);
  EXPECT_THAT(*freed_at, ElementsAre(1, 1, 1));
  EXPECT_EQ(outbox_.payloads().count(), 1);
}

TEST_F(QueueDrainTest, AReadingHoldsItsPlaceAndWhatStandsBeforeItGoes) {
  const auto reading = std::make_shared<ToldReading>();
  Append(1);
  Append(2, reading);
  Append(3);
  queue_.Flush();
  EXPECT_EQ(drain_.Drain(now_, kLinger), now_ + std::chrono::seconds(30));
  EXPECT_THAT(Packed(), ElementsAre(std::pair(1, false)));
  EXPECT_TRUE(drain_.waits_for_reading());
  EXPECT_FALSE(drain_.empty());
  reading->state_ = PendingReading::State::kCame;
  drain_.Drain(now_, kLinger);
  EXPECT_THAT(Packed(), ElementsAre(std::pair(1, false), std::pair(2, false), std::pair(3, false)));
  EXPECT_FALSE(drain_.waits_for_reading());
  EXPECT_TRUE(drain_.empty());
}

TEST_F(QueueDrainTest, ARecordOfALostReadingIsMarkedThoughItWaitsForAnother) {
  Structure two;
  two.name = "Torch.add_two";
  two.fields.kind = NodeKind::kDict;
  for (const char* key : {"0", "1"}) {
    Node tensor;
    tensor.kind = NodeKind::kTensor;
    tensor.key = key;
    two.fields.children.push_back(tensor);
  }
  bool freed = false;
  const auto lost = std::make_shared<ToldReading>(), late = std::make_shared<ToldReading>();
  lost->state_ = PendingReading::State::kLost;
  std::vector<Leaf> leaves(2);
  leaves[0].pending = lost;
  leaves[0].payload = std::make_shared<ToldPayload>("lost", [&] { freed = true; });
  leaves[1].pending = late;
  Fragment fragment;
  fragment.structure = dictionary_.DefineStructure(two);
  fragment.count = 1;
  fragment.leaves = leaves;
  ASSERT_EQ(budget_->Acquire(EncodedSize(fragment)), MemoryBudget::Outcome::kGranted);
  queue_.Append(fragment);
  leaves.clear();
  queue_.Flush();
  drain_.Drain(now_, kLinger);
  EXPECT_FALSE(freed) << "its record is in no batch";
  late->state_ = PendingReading::State::kCame;
  drain_.Drain(now_ + milliseconds(1), kLinger);
  EXPECT_THAT(Packed(), ElementsAre(std::pair(1, true)));
  EXPECT_TRUE(freed);
  EXPECT_EQ(counters_.faults, 1);

  // A lost one does not begin another's wait anew.
  lost->state_ = PendingReading::State::kLost;
  late->state_ = PendingReading::State::kUnderWay;
  leaves.resize(2);
  leaves[0].pending = lost;
  leaves[1].pending = late;
  fragment.count = 2;
  fragment.leaves = leaves;
  ASSERT_EQ(budget_->Acquire(EncodedSize(fragment)), MemoryBudget::Outcome::kGranted);
  queue_.Append(fragment);
  queue_.Flush();
  drain_.Drain(now_, kLinger);
  drain_.Drain(now_ + std::chrono::seconds(31), kLinger);
  EXPECT_THAT(Packed(), ElementsAre(std::pair(1, true), std::pair(2, true)));
}

TEST_F(QueueDrainTest, AfterOneReadingWasGivenUpNoOtherIsWaitedForUntilOneComes) {
  Append(1, std::make_shared<ToldReading>());
  Append(2, std::make_shared<ToldReading>());
  queue_.Flush();
  drain_.Drain(now_, kLinger);
  drain_.Drain(now_ + std::chrono::seconds(31), kLinger);
  EXPECT_THAT(Packed(), ElementsAre(std::pair(1, true), std::pair(2, true)));
  EXPECT_EQ(counters_.faults, 2);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("does not give numbers back")));

  const auto came = std::make_shared<ToldReading>(), late = std::make_shared<ToldReading>();
  came->state_ = PendingReading::State::kCame;
  Append(3, came);
  Append(4, late);
  queue_.Flush();
  drain_.Drain(now_ + std::chrono::seconds(32), kLinger);
  EXPECT_TRUE(drain_.waits_for_reading());
}

TEST_F(QueueDrainTest, NoReadingIsWaitedForBeyondTheEnd) {
  Append(1, std::make_shared<ToldReading>());
  queue_.Flush();
  drain_.ExpectReadingsUntil(now_ + milliseconds(100));
  EXPECT_EQ(drain_.Drain(now_, kLinger), now_ + milliseconds(100));
  drain_.Drain(now_ + milliseconds(100), kLinger);
  EXPECT_THAT(Packed(), ElementsAre(std::pair(1, true)));
}

TEST_F(QueueDrainTest, ARecordThatDoesNotFitItsStructureIsCounted) {
  Fragment fragment;
  fragment.structure = with_tensor_;
  queue_.Append(fragment);
  queue_.Flush();
  drain_.Drain(now_, kLinger);
  EXPECT_EQ(counters_.faults, 1);
  EXPECT_EQ(counters_.fragments_dropped, 1);
  EXPECT_THAT(told_, ElementsAre("batch 1")) << "a gap stands in its place";
}

}  // namespace
}  // namespace msprobe::core
