#include "agent/core/transport/stream/connection.h"

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

#include "agent/core/str_cat.h"
#include "agent/core/transport/stream/fake_ingest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using std::chrono::seconds;
using State = Connection::State;

class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest()
      : directory_(
            std::filesystem::temp_directory_path() /
            Cat("core-connection-", getpid(), "-", ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        fake_((std::filesystem::create_directories(directory_), (directory_ / "s").string())),
        other_((directory_ / "t").string()) {
    hello_.set_session("0123456789abcdef");
  }
  ~ConnectionTest() override {
    connection_.Close(Clock::now() + seconds(20));
    fake_.Stop();
    other_.Stop();
    std::filesystem::remove_all(directory_);
  }

  using Clock = Connection::Clock;

  Connector MakeConnector() {
    Route route;
    route.targets = {fake_.address()};
    return Connector(std::move(route), bell_, &log_);
  }

  void Handle(const v1::ServerMessage& message) {
    if (message.has_welcome()) connection_.Welcomed(message.welcome());
    if (message.has_redirect()) connection_.Redirected(message.redirect().address());
    if (message.has_throttle()) connection_.Throttled(message.throttle().bytes_per_second());
  }

  // Opens, greets and tends until `done`, as a sender does. False: that did not come.
  bool Until(const std::function<bool()>& done) {
    const Clock::time_point deadline = Clock::now() + seconds(20);
    while (!done() && Clock::now() < deadline) {
      const Clock::time_point now = Clock::now();
      const auto ended = connection_.Tend(now, [this](const v1::ServerMessage& message) { Handle(message); });
      if (ended.has_value()) connection_.End(now, *ended);
      Clock::time_point due = deadline;
      if (connection_.state() == State::kClosed) due = std::min(due, connection_.Open(now));
      if (connection_.state() == State::kOpen) connection_.Greet(hello_);
      if (!done()) bell_->WaitUntil(std::min(due, connection_.NextDue(now)));
    }
    return done();
  }
  bool UntilWelcomed() {
    return Until([this] { return connection_.welcomed(); });
  }

  const std::filesystem::path directory_;
  FakeIngest fake_, other_;
  const std::shared_ptr<Doorbell> bell_ = std::make_shared<Doorbell>();
  const Log log_{[](Log::Severity, std::string_view) {}};
  v1::Hello hello_;
  Connection connection_{MakeConnector(), bell_};
};

TEST_F(ConnectionTest, GoesFromClosedToWelcomedAndBack) {
  fake_.Set({.exports = true, .takes_chunks = true});
  fake_.Start();
  EXPECT_EQ(connection_.state(), State::kClosed);
  EXPECT_FALSE(connection_.writable());
  EXPECT_EQ(connection_.NextDue(Clock::now()), Clock::time_point::max());

  EXPECT_EQ(connection_.Open(Clock::now()), Clock::time_point::max());
  EXPECT_EQ(connection_.state(), State::kOpen);
  EXPECT_FALSE(connection_.MaySendContent(Clock::now()));
  connection_.Greet(hello_);
  EXPECT_EQ(connection_.state(), State::kGreeted);
  ASSERT_TRUE(UntilWelcomed());
  EXPECT_TRUE(connection_.offers().exports);
  EXPECT_TRUE(connection_.offers().chunks);
  EXPECT_FALSE(connection_.offers().memory);
  EXPECT_EQ(connection_.target(), fake_.address());

  connection_.Close(Clock::now() + seconds(20));
  EXPECT_EQ(connection_.state(), State::kClosed);
  EXPECT_EQ(fake_.clean_ends(), 1);
}

TEST_F(ConnectionTest, MemoryIsReadOnlyWhereTheHelloNamedIt) {
  fake_.Set({.reads_memory = true});
  fake_.Start();
  ASSERT_TRUE(UntilWelcomed());
  EXPECT_FALSE(connection_.offers().memory);
  connection_.Close(Clock::now() + seconds(20));
  hello_.set_shared_file("msprobe-x");
  ASSERT_TRUE(UntilWelcomed());
  EXPECT_TRUE(connection_.offers().memory);
}

TEST_F(ConnectionTest, WithoutAServerItIsTriedAgainLater) {
  ASSERT_TRUE(Until([&] { return !connection_.trouble().empty(); }));
  EXPECT_EQ(connection_.state(), State::kClosed);
  const Clock::time_point now = Clock::now();
  EXPECT_GT(connection_.Open(now), now);
  fake_.Start();
  EXPECT_TRUE(UntilWelcomed());
  EXPECT_EQ(connection_.trouble(), "");
}

TEST_F(ConnectionTest, AServerThatSaysNothingIsLeftAfterTenSeconds) {
  fake_.Start();
  const Clock::time_point now = Clock::now();
  connection_.Open(now);  // and no Hello, so no Welcome comes
  const auto ignore = [](const v1::ServerMessage&) {};
  EXPECT_EQ(connection_.NextDue(now), now + seconds(10));
  EXPECT_FALSE(connection_.Tend(now + seconds(9), ignore).has_value());
  const std::optional<grpc::Status> ended = connection_.Tend(now + seconds(10), ignore);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  connection_.End(now + seconds(10), *ended);
  EXPECT_EQ(connection_.state(), State::kClosed);
  EXPECT_EQ(connection_.trouble(), "no answer within 10 s");
}

TEST_F(ConnectionTest, GoesWhereTheServerSendsIt) {
  fake_.Set({.redirect_to = other_.address()});
  fake_.Start();
  other_.Start();
  ASSERT_TRUE(UntilWelcomed());
  EXPECT_EQ(connection_.target(), other_.address());
}

TEST_F(ConnectionTest, WhatWasSaidOnAStreamIsForgottenWithIt) {
  fake_.Set({.bytes_per_second = 1, .takes_chunks = true});
  fake_.Start();
  ASSERT_TRUE(UntilWelcomed());
  v1::AgentMessage batch;
  batch.mutable_batch()->set_batch_sequence(1);
  ASSERT_TRUE(connection_.Send(OwnedMessage(batch.SerializeAsString()), 1000));
  EXPECT_FALSE(connection_.MaySendContent(Clock::now() + seconds(900)));
  EXPECT_GT(connection_.NextDue(Clock::now()), Clock::now() + seconds(900));

  fake_.Stop();
  fake_.Set({});
  fake_.Start();
  ASSERT_TRUE(Until([&] { return !connection_.welcomed(); }));
  ASSERT_TRUE(UntilWelcomed());
  EXPECT_TRUE(Until([&] { return connection_.MaySendContent(Clock::now()); }));
  EXPECT_FALSE(connection_.offers().chunks);
}

}  // namespace
}  // namespace msprobe::core
