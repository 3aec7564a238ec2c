#include "server/jobs/job_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

using testing::HasSubstr;

template <typename Request>
std::string Refusal(const Request& request) {
  return std::string(CheckRequest(request).message());
}

v1::CreateJobRequest Create() {
  v1::CreateJobRequest request;
  request.set_run("r");
  request.set_kind("check");
  request.set_token(std::string(16, 't'));
  return request;
}

TEST(JobRequests, CreateNamesTheWrongField) {
  EXPECT_TRUE(CheckRequest(Create()).ok());
  v1::CreateJobRequest request = Create();
  request.set_kind("Check It");
  EXPECT_EQ(Refusal(request), "kind is \"Check It\"; a kind has 1 to 32 lower-case letters, digits, '_' and '-'");
  request = Create();
  request.set_token("short");
  EXPECT_EQ(Refusal(request), "token has 5 bytes; it has 16");
  request = Create();
  request.set_options(std::string(kMaxJobBytes + 1, 'x'));
  EXPECT_EQ(Refusal(request), "options has 65537 bytes; at most 65536 are taken");
  request = Create();
  request.mutable_limits()->set_attempts(101);
  EXPECT_EQ(Refusal(request), "limits.attempts is 101; it goes from 1 to 100");
}

TEST(JobRequests, AddItemsBoundsPayloadsNamesAndNumbers) {
  v1::AddItemsRequest request;
  request.add_items()->set_payload(std::string(kMaxJobBytes, 'x'));
  EXPECT_TRUE(CheckRequest(request).ok());
  request.mutable_items(0)->mutable_payload()->push_back('x');
  EXPECT_THAT(Refusal(request), HasSubstr("items.payload has 65537 bytes"));
  request.mutable_items(0)->clear_payload();
  request.mutable_items(0)->set_name(std::string(kMaxItemName + 1, 'n'));
  EXPECT_THAT(Refusal(request), HasSubstr("items.name has 1025 bytes"));
  request.mutable_items(0)->clear_name();
  request.set_first(UINT64_MAX);
  EXPECT_EQ(Refusal(request), "a job has at most 100000000 items");
}

TEST(JobRequests, LeaseNamesTheWrongField) {
  v1::LeaseRequest request;
  EXPECT_THAT(Refusal(request), HasSubstr("kinds is empty"));
  request.add_kinds("check");
  EXPECT_TRUE(CheckRequest(request).ok());
  request.set_max_items(1025);
  EXPECT_EQ(Refusal(request), "max_items is 1025; it goes from 1 to 1024");
  request.set_max_items(1);
  request.set_lease_ms(10);
  EXPECT_EQ(Refusal(request), "lease_ms is 10; it goes from 1000 to 600000");
}

TEST(JobRequests, FinishTakesNoOutcomeThatIsTheServersToGive) {
  v1::FinishRequest request;
  request.add_results()->set_outcome(v1::OUTCOME_CRASHED);
  EXPECT_EQ(Refusal(request), "results.outcome of item 0 is OUTCOME_CRASHED; a worker says DONE or FAILED");
  request.mutable_results(0)->set_outcome(v1::OUTCOME_DONE);
  EXPECT_TRUE(CheckRequest(request).ok());
  *request.add_results() = request.results(0);
  EXPECT_EQ(Refusal(request), "results has item 0 twice");
  request.mutable_results()->RemoveLast();
  request.mutable_results(0)->set_result(std::string(kMaxJobBytes + 1, 'x'));
  EXPECT_THAT(Refusal(request), HasSubstr("results.result of item 0 has 65537 bytes"));
}

TEST(JobRequests, LongMessagesAreCutBetweenCharacters) {
  EXPECT_EQ(ShortMessage("short"), "short");
  const std::string text = std::string(kMaxJobMessage - 1, 'x') + "\xc3\xa9";
  EXPECT_EQ(ShortMessage(text), std::string(kMaxJobMessage - 1, 'x'));
}

}  // namespace
}  // namespace msprobe::server
