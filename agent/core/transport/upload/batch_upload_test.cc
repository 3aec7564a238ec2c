#include "agent/core/transport/upload/batch_upload.h"

#include <optional>

#include "agent/core/transport/sender_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class BatchUploadTest : public SenderPartsTest {
 protected:
  // Sends all that goes, and gives the sequences.
  std::vector<uint64_t> Send() {
    std::vector<uint64_t> sequences;
    while (batches_.SendNext({.digests = true, .edges = true, .scalars = true, .responses = true},
                             [&](const grpc::ByteBuffer& message, size_t content) {
                               EXPECT_EQ(content, message.Length());
                               sent_.push_back(Parsed(message).batch());
                               sequences.push_back(sent_.back().batch_sequence());
                               return true;
                             })) {
    }
    return sequences;
  }

  void Acknowledge(uint64_t durable_through) {
    outbox_.batches().Acknowledge(durable_through);
    batches_.Acknowledged();
  }

  // A batch of a marker.
  void AppendMarker(std::optional<uint32_t> step) {
    v1::Marker marker;
    marker.mutable_step_end()->set_step(step.value_or(0));
    packer_.AddMarker(marker, step);
    outbox_.Append(packer_.Cut(0));
  }

  std::vector<v1::Batch> sent_;
  BatchUpload batches_{&parts_, "0123456789abcdef", &outbox_.batches(), &packer_};
};

TEST_F(BatchUploadTest, EveryStreamBeginsBehindWhatIsDurable) {
  for (uint32_t count = 1; count <= 3; ++count) AppendBatch(count);
  EXPECT_THAT(Send(), ElementsAre(1, 2, 3));
  EXPECT_THAT(Send(), IsEmpty());
  Acknowledge(1);
  batches_.Begin();
  EXPECT_THAT(Send(), ElementsAre(2, 3));
  EXPECT_EQ(counters_.batches_sent, 5);
}

TEST_F(BatchUploadTest, WhatAFormerStreamBroughtIsNotSentAgain) {
  for (uint32_t count = 1; count <= 3; ++count) AppendBatch(count);
  batches_.Begin();
  Acknowledge(2);
  EXPECT_THAT(Send(), ElementsAre(3));
}

TEST_F(BatchUploadTest, ABatchThatTheStreamDidNotTakeIsNotSent) {
  AppendBatch(1);
  EXPECT_FALSE(batches_.SendNext({.digests = true, .edges = true, .scalars = true, .responses = true},
                                 [](const grpc::ByteBuffer&, size_t) { return false; }));
  EXPECT_THAT(Send(), ElementsAre(1));
  EXPECT_EQ(counters_.batches_sent, 1);
}

TEST_F(BatchUploadTest, TheMalformedBatchIsFoundOneByOneAndAGapTakesItsPlace) {
  for (uint32_t count = 1; count <= 3; ++count) AppendBatch(count);
  Send();
  batches_.Refused();
  batches_.Begin();
  EXPECT_THAT(Send(), ElementsAre(1));
  Acknowledge(1);
  EXPECT_THAT(Send(), ElementsAre(2, 3)) << "one went through, so others may go together";

  batches_.Refused();
  batches_.Begin();
  EXPECT_THAT(Send(), ElementsAre(2));
  batches_.Refused();
  batches_.Begin();
  EXPECT_THAT(Send(), ElementsAre(2));
  const v1::Batch& replaced = sent_.back();
  EXPECT_EQ(replaced.session(), "0123456789abcdef");
  ASSERT_EQ(replaced.items_size(), 1);
  EXPECT_EQ(replaced.items(0).marker().gap().fragments(), 1);
  EXPECT_EQ(replaced.items(0).marker().gap().reason(), v1::Marker::Gap::FAULT);
  EXPECT_GT(replaced.definitions_size(), 0) << "later batches refer to what this one defined";
  EXPECT_EQ(counters_.fragments_dropped, 1);
  EXPECT_THAT(lines_, ElementsAre("msprobe: batch 2 with 1 records is lost."));
}

TEST_F(BatchUploadTest, AServerThatLostBatchesGetsTheDefinitionsAgainAndTheGap) {
  AppendBatch(1);
  AppendBatch(2, 7);
  Send();
  Acknowledge(1);
  EXPECT_TRUE(batches_.ReportServerLoss());
  batches_.Begin();
  EXPECT_THAT(Send(), ElementsAre(2));
  const v1::Batch& batch = sent_.back();
  EXPECT_EQ(batch.definitions_size(), 2) << "both structures of the dictionary, though no batch used the second one";
  ASSERT_EQ(batch.items_size(), 2);
  EXPECT_EQ(batch.items(0).marker().gap().reason(), v1::Marker::Gap::SERVER_LOST);
  EXPECT_EQ(batch.items(0).marker().gap().step(), 7);
  EXPECT_THAT(batch.items(1).block().count(), ElementsAre(2));
}

TEST_F(BatchUploadTest, AGapOfTheServersGoesWhereAStepIsNotIntoStepZero) {
  AppendMarker(std::nullopt);
  EXPECT_FALSE(batches_.ReportServerLoss()) << "no batch belongs to a step";
  AppendMarker(5);  // the end of a step that is open
  AppendBatch(1, 7);
  EXPECT_TRUE(batches_.ReportServerLoss());
  batches_.Begin();
  EXPECT_THAT(Send(), ElementsAre(1, 2, 3));
  EXPECT_EQ(sent_[0].items_size(), 1);
  ASSERT_EQ(sent_[1].items_size(), 2);
  EXPECT_EQ(sent_[1].items(0).marker().gap().step(), 5);
  EXPECT_EQ(sent_[1].definitions_size(), 2);
  EXPECT_EQ(sent_[2].items_size(), 1);
}

}  // namespace
}  // namespace msprobe::core
