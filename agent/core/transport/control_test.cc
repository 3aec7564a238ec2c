#include "agent/core/transport/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace msprobe::core {
namespace {

using testing::ElementsAre;
using testing::Field;

ControlCommand Command(uint64_t id, ControlCommand::Action action) {
  ControlCommand command;
  command.id = id;
  command.action = action;
  return command;
}

ControlState Enabled(bool enabled) {
  ControlState state;
  state.enabled = enabled;
  return state;
}

TEST(ControlMailbox, AnswerIsToldTogetherWithTheStateItLedTo) {
  int rings = 0;
  ControlMailbox mailbox([&] { ++rings; });
  mailbox.SetState(Enabled(true));
  mailbox.Put(Command(7, ControlCommand::Action::kStop));
  EXPECT_TRUE(mailbox.waiting());
  EXPECT_THAT(mailbox.Take(), ElementsAre(Field(&ControlCommand::id, 7)));
  mailbox.Answer(7, "captures no more", false);
  EXPECT_EQ(mailbox.report().answer.command, 0) << "stopped, and enabled still";
  EXPECT_EQ(rings, 0);
  ControlState stopped = Enabled(false);
  stopped.step = 12;
  mailbox.SetState(stopped);
  const ControlMailbox::Report report = mailbox.report();
  EXPECT_EQ(report.answer.command, 7);
  EXPECT_EQ(report.answer.step, 12U);
  EXPECT_EQ(report.answer.said, "captures no more");
  EXPECT_FALSE(report.state.enabled);
  EXPECT_EQ(rings, 1);
  mailbox.SetState(Enabled(false));
  EXPECT_EQ(mailbox.report().answer.command, 7) << "the latest stays";
  EXPECT_EQ(mailbox.report().answer.step, 12U) << "however far the program has come since";
  EXPECT_EQ(rings, 1) << "the sender is woken for answers alone";
}

TEST(ControlMailbox, StatusIsAnsweredWithoutTheProgram) {
  ControlMailbox mailbox([] {});
  const uint64_t version = mailbox.report().version;
  mailbox.Put(Command(3, ControlCommand::Action::kStatus));
  EXPECT_FALSE(mailbox.waiting());
  EXPECT_EQ(mailbox.report().received, 3);
  EXPECT_GT(mailbox.report().version, version);
}

}  // namespace
}  // namespace msprobe::core
