#include "agent/capture/response_log.h"

#include <memory>
#include <string>
#include <vector>

#include "agent/capture/recorder_fixture.h"

namespace msprobe::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ResponseLogTest : public RecorderTest {
 protected:
  void OpenWith(bool knows_responses) {
    Open({});
    fake_.Set({.knows_edges = true, .knows_scalars = true, .knows_responses = knows_responses});
    responses_ = std::make_unique<ResponseLog>(session_.get(), &recorder_->faults());
  }

  // The strings of all scalars that the server has.
  std::vector<std::string> Requests() {
    EXPECT_TRUE(session_->Wait(absl::Seconds(20)).ok());
    std::vector<std::string> requests;
    for (const v1::Batch& batch : fake_.batches()) {
      for (const v1::Item& item : batch.items()) {
        for (const std::string& each : item.scalars().strings()) requests.push_back(each);
      }
    }
    return requests;
  }

  std::unique_ptr<ResponseLog> responses_;
};

TEST_F(ResponseLogTest, TokensOfAllRequestsHaveOneStructure) {
  OpenWith(true);
  for (const char* request : {"a", "b", "c"}) {
    responses_->Token(3, request, {.id = 7, .has_logprobs = true, .top1 = -0.5, .mass = 0.9});
  }
  EXPECT_THAT(Requests(), ElementsAre("a", "b", "c"));
  size_t structures = 0;
  const auto batches = fake_.batches();
  for (const v1::Batch& batch : batches) structures += static_cast<size_t>(batch.definitions_size());
  EXPECT_EQ(structures, 1u);
  const v1::Block& block = batches.front().items(0).scalars();
  EXPECT_EQ(block.step(), 3u);
  EXPECT_THAT(block.integers(), ElementsAre(7));
  EXPECT_THAT(block.floats(), ElementsAre(-0.5, 0.9));
}

TEST_F(ResponseLogTest, AServerThatDoesNotKnowThemHearsOfScalarsAlone) {
  OpenWith(false);
  responses_->Token(0, "a", {.id = 7});
  responses_->End(0, "a");
  recorder_->scalars().Log(0, std::vector<ScalarLog::Scalar>{{.name = "loss", .value = 3, .read = nullptr}});
  EXPECT_THAT(Requests(), IsEmpty());
  EXPECT_EQ(Scalars().size(), 1u);
}

}  // namespace
}  // namespace msprobe::capture
