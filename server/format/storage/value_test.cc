#include "server/format/storage/value.h"

#include <gtest/gtest.h>

#include "server/format/storage/key.h"

namespace msprobe::server {
namespace {

TEST(Value, ReferenceBytesOfEachMetaRow) {
  storage::ServerRow server;
  server.set_format_version(1);
  server.set_server_id("ab");
  server.set_next_run(2);
  EXPECT_EQ(Hex(EncodeValue(server)), "010801120261622002");
  storage::RunRow run;
  run.set_name("r");
  run.set_number(1);
  run.set_next_epoch(3);
  EXPECT_EQ(Hex(EncodeValue(run)), "010a017210012003");
  storage::SessionRow session;
  session.set_session("s");
  session.set_run(1);
  session.set_epoch(2);
  session.set_watermark(7);
  session.set_state(storage::SessionRow::LOST);
  EXPECT_EQ(Hex(EncodeValue(session)),
            "010a0173100118022807"
            "3002");
  storage::StepRow step;
  step.set_state(v1::StepSummary::COMPLETE);
  step.set_records(2);
  step.set_exported(true);
  EXPECT_EQ(Hex(EncodeValue(step)), "01080118027001");
  storage::PayloadRow payload;
  payload.set_size(300);
  payload.set_chunks(1);
  EXPECT_EQ(Hex(EncodeValue(payload)), "0108ac021001");
  storage::PendingRow pending;
  pending.set_size(1);
  pending.add_steps(4);
  EXPECT_EQ(Hex(EncodeValue(pending)), "010801120104");
  storage::ReferenceRow reference;
  reference.set_size(5);
  EXPECT_EQ(Hex(EncodeValue(reference)), "010805");
}

TEST(Value, ReadsBackAndShows) {
  storage::RunRow run;
  run.set_name("r");
  auto back = DecodeAs<storage::RunRow>(EncodeValue(run));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->name(), "r");
  storage::RunRow scratch;
  EXPECT_EQ(ValueToString(EncodeValue(run), scratch), "v1 msprobe.storage.RunRow { name: \"r\" }");
}

TEST(Value, RefusesOtherVersionsAndRubbish) {
  storage::RunRow row;
  EXPECT_EQ(DecodeValue("", row).code(), absl::StatusCode::kDataLoss);
  absl::Status future = DecodeValue("\x02", row);
  EXPECT_EQ(future.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(future.message().find("version 2"), std::string::npos);
  EXPECT_EQ(DecodeValue("\x01\x0a\xff", row).code(), absl::StatusCode::kDataLoss);
}

TEST(Definition, KeepsKindAndBytes) {
  const std::string value = EncodeDefinition(DefinitionKind::kStack, "xyz");
  EXPECT_EQ(Hex(value), "014b78797a");
  auto back = DecodeDefinition(value);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->kind, DefinitionKind::kStack);
  EXPECT_EQ(back->bytes, "xyz");
  EXPECT_FALSE(DecodeDefinition("\x01Z").ok());
}

}  // namespace
}  // namespace msprobe::server
