#include "agent/capture/scalar_log.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "agent/capture/recorder_fixture.h"

namespace msprobe::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class ScalarLogTest : public RecorderTest {
 protected:
  void OpenWith(core::Config config, bool knows_scalars = true) {
    Open(std::move(config));
    fake_.Set({.knows_edges = true, .knows_scalars = knows_scalars});
  }

  ScalarLog::Scalar Of(std::string_view name, const Array& array) {
    return {.name = name, .read = [this, &array](const MemoryReader& memory) {
              return recorder_->source().Read(TensorRef{&array}, false, memory);
            }};
  }

  // What the server has: step and name, and the value.
  std::vector<std::pair<std::string, double>> Points() {
    std::vector<std::pair<std::string, double>> points;
    for (const ToldScalar& scalar : Scalars()) {
      points.emplace_back(core::Cat(scalar.step, " ", scalar.name), scalar.value);
    }
    return points;
  }

  const Array loss_{.values = {2.5F}};
};

TEST_F(ScalarLogTest, SendsNumbersAndTensorsInOrder) {
  OpenWith({});
  const std::vector<ScalarLog::Scalar> scalars = {{.name = "lr", .value = 1e-4, .read = nullptr}, Of("loss", loss_)};
  recorder_->scalars().Log(7, scalars);
  recorder_->scalars().Log(8, scalars);
  EXPECT_THAT(Points(), ElementsAre(Pair("7 lr", 1e-4), Pair("7 loss", 2.5), Pair("8 lr", 1e-4), Pair("8 loss", 2.5)));
}

TEST_F(ScalarLogTest, ReadsNumbersWhateverTheTaskCaptures) {
  core::Config config;
  config.task = core::Task::kStructure;
  config.summary_mode = core::SummaryMode::kMd5;
  OpenWith(config);
  recorder_->scalars().Log(0, std::vector{Of("loss", loss_)});
  EXPECT_THAT(Points(), ElementsAre(Pair("0 loss", 2.5)));
}

TEST_F(ScalarLogTest, AStepThatHasEndedStillTakesThem) {
  OpenWith({});
  Sum({&ones_});
  recorder_->EndStep(0, true);
  recorder_->scalars().Log(0, std::vector<ScalarLog::Scalar>{{.name = "eval", .value = 3, .read = nullptr}});
  EXPECT_THAT(Points(), ElementsAre(Pair("0 eval", 3)));
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

TEST_F(ScalarLogTest, AServerThatDoesNotKnowThemIsToldOfNone) {
  OpenWith({}, false);
  Sum({&ones_});
  recorder_->scalars().Log(0, std::vector{Of("loss", loss_)});
  recorder_->EndStep(0, true);
  EXPECT_THAT(Points(), IsEmpty());
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

TEST_F(ScalarLogTest, ATensorThatCannotBeReadIsAFault) {
  OpenWith({});
  Array broken;
  broken.is_broken = true;
  recorder_->scalars().Log(0, std::vector{Of("loss", broken)});
  EXPECT_THAT(Points(), IsEmpty());
  EXPECT_EQ(session_->counters().faults, 1U);
}

}  // namespace
}  // namespace msprobe::capture
