#include "agent/capture/fragments/fragment_emitter.h"

#include "agent/capture/recorder_fixture.h"

namespace msprobe::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;

class FragmentEmitterTest : public RecorderTest {
 protected:
  OpenRecord BeginModule() {
    return recorder_->opener().BeginModule(std::make_shared<const std::string>("Module.net"), ThreadState::Get());
  }
};

TEST_F(FragmentEmitterTest, AModuleMovesToThePlaceWhereItEnds) {
  Open();
  OpenRecord module = BeginModule();
  const uint64_t begun = module.ordinal;
  EmitFields(module, core::kEnter, "input_args", {&ones_});
  EXPECT_EQ(module.ordinal, begun);
  EmitFields(module, core::kExit, "output", {&ones_});
  EXPECT_GT(module.ordinal, begun);
  const std::map<std::string, Told> records = Records();
  EXPECT_EQ(records.at("Module.net.forward.0").flags, uint32_t{core::kEnter | core::kExit | core::kUpdate});
}

TEST_F(FragmentEmitterTest, AnApiStaysWhereItBegan) {
  Open();
  OpenRecord call = recorder_->opener().BeginApi(sum_, ThreadState::Get());
  const uint64_t begun = call.ordinal;
  EmitFields(call, core::kEnter, "input_args", {&ones_});
  EmitFields(call, core::kExit, "output", {&ones_});
  EXPECT_EQ(call.ordinal, begun);
}

TEST_F(FragmentEmitterTest, LeavesOutACallWhoseStepHasEnded) {
  Open();
  OpenRecord call = recorder_->opener().BeginApi(sum_, ThreadState::Get());
  recorder_->EndStep(0, true);
  EmitFields(call, core::kEnter | core::kExit, "output", {&ones_});
  EXPECT_THAT(Records(), IsEmpty());
}

TEST_F(FragmentEmitterTest, ARecordThatIsNotWantedStandsInTheConstructOnly) {
  core::Config config;
  config.list = {"Array.mean"};
  Open(config);
  OpenRecord call = recorder_->opener().BeginApi(sum_, ThreadState::Get());
  recorder_->emitter().EmitConstructOnly(call);
  call.in_construct = false;
  ++call.count;
  recorder_->emitter().EmitConstructOnly(call);  // nothing to emit
  EXPECT_THAT(Records(), ElementsAre(Key("Array.sum.0.forward")));
}

TEST_F(FragmentEmitterTest, MarksARecordThatAStageTouched) {
  Open();
  OpenRecord call = recorder_->opener().BeginApi(sum_, ThreadState::Get());
  call.touched = true;
  EmitFields(call, core::kEnter | core::kExit, "output", {&ones_});
  EXPECT_NE(Records().at("Array.sum.0.forward").flags & core::kTouched, 0u);
}

}  // namespace
}  // namespace msprobe::capture
