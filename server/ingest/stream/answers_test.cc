#include "server/ingest/stream/answers.h"

#include <gtest/gtest.h>

#include "server/ingest/session/fake_session.h"

namespace msprobe::server {
namespace {

v1::ServerMessage Welcome() {
  v1::ServerMessage message;
  message.mutable_welcome()->set_protocol(1);
  return message;
}

v1::ServerMessage Throttle(uint64_t bytes_per_second) {
  v1::ServerMessage message;
  message.mutable_throttle()->set_bytes_per_second(bytes_per_second);
  return message;
}

TEST(Answers, SaysNothingBeforeTheFirstWordAndAllElseBehindIt) {
  FakeSession session;
  Answers answers;
  answers.Add(Throttle(1));
  answers.Acknowledge();
  EXPECT_FALSE(answers.Next(&session).has_value());
  answers.Open(Welcome());
  answers.Add(Throttle(2));
  EXPECT_TRUE(answers.Next(&session)->has_welcome());
  EXPECT_EQ(answers.Next(&session)->throttle().bytes_per_second(), 1u);
  EXPECT_EQ(answers.Next(&session)->throttle().bytes_per_second(), 2u);
  EXPECT_TRUE(answers.Next(&session)->has_ack());
  EXPECT_FALSE(answers.Next(&session).has_value());
}

TEST(Answers, OneAcknowledgementStandsForAllSinceTheLast) {
  FakeSession session;
  Answers answers;
  answers.Open(Welcome());
  answers.Next(&session);
  for (session.received = 1; session.received < 7; ++session.received) answers.Acknowledge();
  session.durable = 5;
  const auto next = answers.Next(&session);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->ack().received_through(), 7u);
  EXPECT_EQ(next->ack().durable_through(), 5u);
  EXPECT_FALSE(answers.Next(&session).has_value());
}

TEST(Answers, ARedirectGoesOutWithoutASessionAndNothingIsAcknowledged) {
  Answers answers;
  answers.Acknowledge();
  v1::ServerMessage redirect;
  redirect.mutable_redirect()->set_address("elsewhere:1");
  answers.Open(redirect);
  EXPECT_EQ(answers.Next(nullptr)->redirect().address(), "elsewhere:1");
  EXPECT_FALSE(answers.Next(nullptr).has_value());
}

TEST(Answers, ForgetsWhatABrokenCallCannotSay) {
  FakeSession session;
  Answers answers;
  answers.Open(Welcome());
  answers.Acknowledge();
  answers.Clear();
  EXPECT_FALSE(answers.Next(&session).has_value());
}

}  // namespace
}  // namespace msprobe::server
