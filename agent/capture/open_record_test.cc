#include "agent/capture/open_record.h"

#include <gtest/gtest.h>

namespace msprobe::capture {
namespace {

OpenRecord Record(core::RecordKind kind, core::Direction direction, uint32_t pass = 0) {
  OpenRecord record;
  record.name = std::make_shared<const std::string>("Some.name");
  record.kind = kind;
  record.direction = direction;
  record.count = 3;
  record.pass = pass;
  return record;
}

TEST(OpenRecord, HasTheFullNameOfItsKind) {
  using core::Direction;
  using core::RecordKind;
  EXPECT_EQ(Record(RecordKind::kApi, Direction::kForward).FullName(), "Some.name.3.forward");
  EXPECT_EQ(Record(RecordKind::kApi, Direction::kBackward).FullName(), "Some.name.3.backward");
  EXPECT_EQ(Record(RecordKind::kModule, Direction::kForward).FullName(), "Some.name.forward.3");
  EXPECT_EQ(Record(RecordKind::kModule, Direction::kBackward).FullName(), "Some.name.backward.3");
  EXPECT_EQ(Record(RecordKind::kParametersGrad, Direction::kBackward).FullName(), "Some.name.parameters_grad.3");
  EXPECT_EQ(Record(RecordKind::kDebug, Direction::kForward).FullName(), "Some.name.3.debug");
}

TEST(OpenRecord, NamesTheFurtherPassesOverOneForwardCall) {
  EXPECT_EQ(Record(core::RecordKind::kApi, core::Direction::kBackward, 2).FullName(), "Some.name.3.backward.2");
  EXPECT_EQ(Record(core::RecordKind::kModule, core::Direction::kBackward, 1).FullName(), "Some.name.backward.3.1");
}

}  // namespace
}  // namespace msprobe::capture
