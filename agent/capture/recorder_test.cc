// The recorder over a framework that is not torch.
#include "agent/capture/recorder.h"

#include "agent/capture/recorder_fixture.h"

namespace msprobe::capture {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Key;

TEST_F(RecorderTest, RecordsTheTensorsOfACall) {
  Open();
  Sum({&ones_, &twos_});
  const std::map<std::string, Told> records = Records();
  ASSERT_THAT(records, ElementsAre(Key("Array.sum.0.forward")));
  const Told& sum = records.begin()->second;
  EXPECT_EQ(sum.fields, "input_args[arrays.Array(3) max 1;arrays.Array(2) max 2;]output[arrays.Array(2) max 4;]");
  EXPECT_EQ(sum.flags, uint32_t{core::kEnter | core::kExit});
  EXPECT_EQ(fake_.hellos().back().settings().framework(), "arrays");
}

TEST_F(RecorderTest, KeepsTheBytesOfATensorTask) {
  core::Config config;
  config.task = core::Task::kTensor;
  Open(config);
  Sum({&ones_});
  Records();
  const std::string bytes(reinterpret_cast<const char*>(ones_.values.data()), ones_.values.size() * sizeof(float));
  std::vector<std::string> kept;
  for (const auto& [hash, payload] : fake_.payloads()) kept.push_back(payload);
  EXPECT_THAT(kept, Contains(bytes));
}

TEST_F(RecorderTest, TellsWhichRecordMadeAnInput) {
  Open();
  Sum({&ones_, &twos_});
  Array first = result_;
  Sum({&first, &ones_});
  Array second = std::move(result_);
  first.storage->version = 4;  // written by a call that is not recorded
  const Array part{.values = {1}, .storage = second.storage};
  Sum({&first, &second, &part});
  const std::map<std::string, Told> records = Records();
  EXPECT_THAT(records.at("Array.sum.0.forward").edges, ElementsAre("outside", "outside"));
  EXPECT_THAT(records.at("Array.sum.1.forward").edges, ElementsAre("SAME Array.sum.0.forward 0", "outside"));
  EXPECT_THAT(records.at("Array.sum.2.forward").edges,
              ElementsAre("CHANGED Array.sum.0.forward 0", "SAME Array.sum.1.forward 0", "VIEW Array.sum.1.forward 0"));
}

TEST_F(RecorderTest, AServerThatDoesNotKnowEdgesIsToldOfNone) {
  knows_edges_ = false;
  Open();
  Sum({&ones_});
  Sum({&result_});
  EXPECT_THAT(Records().at("Array.sum.1.forward").edges, ElementsAre());
}

TEST_F(RecorderTest, WithoutEdgesTheServerIsToldOfNone) {
  core::Config config;
  config.edges = false;
  Open(config);
  Sum({&ones_});
  Sum({&result_});
  EXPECT_THAT(Records().at("Array.sum.1.forward").edges, ElementsAre());
  for (const v1::Batch& batch : fake_.batches()) {
    for (const v1::Item& item : batch.items()) EXPECT_EQ(item.block().edge_size(), 0);
  }
}

TEST_F(RecorderTest, TellsTheSourceOfStepsAndFlushesWhatIsUnderWay) {
  Open();
  recorder_->Stop();
  EXPECT_EQ(log_.flushes, 1);
  EXPECT_EQ(log_.steps, 0);
  recorder_->EndStep(0, true);
  EXPECT_EQ(log_.flushes, 2);
  EXPECT_EQ(log_.steps, 1);
}

TEST_F(RecorderTest, TellsWhatAStepHad) {
  core::Config config;
  config.list = {"Array.mean"};
  Open(config);
  recorder_->step().BeginToken();
  Sum({&ones_});  // not in the list: a call, but no record
  Recorder::StepContents had = recorder_->EndStep(0, true);
  EXPECT_TRUE(had.passes);
  EXPECT_TRUE(had.calls);
  EXPECT_FALSE(had.records);
  had = recorder_->EndStep(1, true);
  EXPECT_FALSE(had.passes);
  EXPECT_FALSE(had.calls);
}

}  // namespace
}  // namespace msprobe::capture
