#include "agent/capture/record_opener.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "agent/capture/gradient_readings.h"
#include "agent/capture/recorder_fixture.h"

namespace msprobe::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::Key;

using RecordOpenerTest = RecorderTest;

TEST_F(RecordOpenerTest, CountsCallsAndBeginsAgainInTheNextStep) {
  Open();
  Sum({&ones_});
  Sum({&ones_});
  EXPECT_THAT(Records(), ElementsAre(Key("Array.sum.0.forward"), Key("Array.sum.1.forward")));
  recorder_->step().GoOn(1);
  EXPECT_EQ(Sum({&ones_}).FullName(), "Array.sum.0.forward");
}

TEST_F(RecordOpenerTest, AModuleIsTheParentOfItsCallsAndStandsBehindThem) {
  Open();
  ThreadState& thread = ThreadState::Get();
  OpenRecord module = recorder_->opener().BeginModule(std::make_shared<const std::string>("Module.net"), thread);
  EmitFields(module, core::kEnter, "input_args", {&ones_});
  recorder_->opener().PushModule(thread, nullptr, module);
  Sum({&ones_});
  EmitFields(module, core::kExit, "output", {&twos_});
  recorder_->opener().PopModule(thread, module);
  Sum({&twos_});
  const std::map<std::string, Told> records = Records();
  EXPECT_EQ(records.at("Array.sum.0.forward").parent, "Module.net.forward.0");
  EXPECT_EQ(records.at("Array.sum.1.forward").parent, "");
  EXPECT_GT(records.at("Module.net.forward.0").ordinal, records.at("Array.sum.0.forward").ordinal);
}

TEST_F(RecordOpenerTest, NumbersThePassesBackwardOverOneCall) {
  Open();
  OpenRecord forward = Sum({&ones_});
  forward.passes = std::make_shared<PassCount>();
  GradientReadings arriving(1), leaving(2);
  arriving[0] = recorder_->Read(TensorRef{&twos_}, false);
  EmitBackward(*recorder_, forward, arriving, leaving);
  EmitBackward(*recorder_, forward, arriving, leaving);
  const std::map<std::string, Told> records = Records();
  constexpr char kFields[] = "input[arrays.Array(2) max 2;]output[null;null;]";
  EXPECT_EQ(records.at("Array.sum.0.backward").fields, kFields);
  EXPECT_EQ(records.at("Array.sum.0.backward.1").fields, kFields);
}

TEST_F(RecordOpenerTest, LeavesOutWhatTheListDoesNotName) {
  core::Config config;
  config.list = {"Array.mean"};
  Open(config);
  Sum({&ones_});
  EXPECT_EQ(Records().at("Array.sum.0.forward").flags & core::kConstructOnly, uint32_t{core::kConstructOnly});
}

TEST_F(RecordOpenerTest, AsksTheSourceWhetherACallIsASecondForward) {
  Open();
  Sum({&ones_});
  log_.is_recompute = true;
  Sum({&ones_});
  EXPECT_THAT(log_.calls, ElementsAre(core::RecordKind::kApi, core::RecordKind::kApi));
  const std::map<std::string, Told> records = Records();
  EXPECT_EQ(records.at("Array.sum.0.forward").flags & core::kRecompute, 0u);
  EXPECT_EQ(records.at("Array.sum.1.forward").flags & core::kRecompute, uint32_t{core::kRecompute});
}

TEST_F(RecordOpenerTest, CountsTheCallsOfEachSlotByThemselves) {
  Open();
  ThreadState first(0), second(1);
  second.slot = 1;
  EXPECT_EQ(recorder_->opener().BeginApi(sum_, first).count, 0u);
  EXPECT_EQ(recorder_->opener().BeginApi(sum_, second).count, StepNumbers::kThreadStride);
  EXPECT_EQ(recorder_->opener().BeginApi(sum_, first).count, 1u);
  log_.is_recompute = true;  // a second forward counts on where the first one was, whichever thread runs it
  EXPECT_EQ(recorder_->opener().BeginApi(sum_, second).count, 2u);
}

TEST_F(RecordOpenerTest, AsksTheFiltersAgainWhereACallEnds) {
  core::Config config;
  config.scope = {"Module.net.forward.0", "Module.net.forward.0"};
  Open(config);
  ThreadState thread(0);
  OpenRecord sum = recorder_->opener().BeginApi(sum_, thread);
  EXPECT_FALSE(sum.wanted);
  recorder_->opener().BeginModule(std::make_shared<const std::string>("Module.net"), thread);
  recorder_->opener().Recheck(sum);
  EXPECT_TRUE(sum.wanted);
}

TEST_F(RecordOpenerTest, TheBackwardOfAModuleComesBehindItsForward) {
  Open();
  ThreadState thread(0);
  OpenRecord forward = recorder_->opener().BeginModule(std::make_shared<const std::string>("Module.net"), thread);
  forward.passes = std::make_shared<PassCount>();
  const OpenRecord backward = recorder_->opener().BeginBackward(forward, thread);
  EXPECT_EQ(backward.FullName(), "Module.net.backward.0");
  EXPECT_GT(backward.ordinal, forward.ordinal);
  const OpenRecord again = recorder_->opener().BackwardOf(forward);
  EXPECT_EQ(again.FullName(), "Module.net.backward.0");
  EXPECT_TRUE(again.entered);
}

TEST_F(RecordOpenerTest, ASavedValueKeepsItsPlace) {
  Open();
  const OpenRecord value = recorder_->opener().BeginDebug("value", 0);
  EXPECT_EQ(value.FullName(), "value.0.debug");
  EXPECT_GT(recorder_->opener().BeginDebug("other", 0).ordinal, value.ordinal);
  EXPECT_EQ(recorder_->opener().BeginDebug("value", 0).ordinal, value.ordinal);
}

// Not under sanitizers: GCC 12's take no care of their own locks at a fork. A child that allocates waits for ever for
// the one around their stacks of allocations, where another thread had it.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST_F(RecordOpenerTest, WhatWasOpenEndsInAForkedChildWhateverAnotherThreadHolds) {
  constexpr int kChildren = 50;
  core::Config config;
  config.scope = {"Array.sum.0.forward", "Array.sum.1.forward"};  // so that the filters are asked again at the end
  Open(config);
  ThreadState& thread = ThreadState::Get();
  OpenRecord module = recorder_->opener().BeginModule(std::make_shared<const std::string>("Module.net"), thread);
  recorder_->opener().PushModule(thread, nullptr, module);
  std::atomic<bool> goes_on{true};
  std::thread other([&] {
    while (goes_on) recorder_->opener().BeginApi(sum_, ThreadState::Get());
  });
  int ended = 0;
  for (; ended < kChildren; ++ended) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // where it waits for a lock, nobody is left to give it up
      recorder_->opener().Recheck(module);
      EmitFields(module, core::kExit, "output", {&twos_});
      recorder_->opener().PopModule(thread, module);
      recorder_->EndStep(0, true);
      _exit(module.wanted ? 1 : 0);
    }
    int result = -1;
    waitpid(child, &result, 0);
    if (result != 0) break;
  }
  goes_on = false;
  other.join();
  EXPECT_EQ(ended, kChildren);
}
#endif

}  // namespace
}  // namespace msprobe::capture
