#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "server/query/analysis_context.h"

namespace msprobe::server {
namespace {

v1::MeasureRequest Begin(uint64_t id, v1::DType dtype, int64_t size) {
  v1::MeasureRequest request;
  auto* begin = request.mutable_begin();
  begin->set_id(id);
  begin->mutable_output()->set_dtype(dtype);
  begin->mutable_output()->add_shape(size);
  begin->mutable_golden()->set_dtype(v1::DTYPE_FLOAT64);
  begin->mutable_golden()->add_shape(size);
  return request;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

v1::MeasureRequest Elements(const std::vector<float>& output, const std::vector<double>& golden, bool end) {
  v1::MeasureRequest request;
  request.mutable_elements()->set_output(Bytes(output));
  request.mutable_elements()->set_golden(Bytes(golden));
  request.set_end(end);
  return request;
}

struct Answered {
  absl::Status status;
  std::vector<v1::MeasureResponse> responses;
};

Answered Ask(std::deque<v1::MeasureRequest> requests) {
  Answered answered;
  answered.status = Measure(
      [&](v1::MeasureRequest& request) {
        if (requests.empty()) return false;
        request = requests.front();
        requests.pop_front();
        return true;
      },
      [&](const v1::MeasureResponse& response) {
        answered.responses.push_back(response);
        return true;
      });
  return answered;
}

TEST(MeasureTest, OutputsOneAfterAnotherInAnyNumberOfChunks) {
  v1::MeasureRequest with_policy = Begin(8, v1::DTYPE_FLOAT32, 1);
  with_policy.set_policy("torch");
  const Answered answered = Ask({Begin(7, v1::DTYPE_FLOAT32, 3), Elements({1, 2}, {1, 2}, false),
                                 Elements({3}, {3.5}, true), with_policy, Elements({1}, {1}, true)});
  ASSERT_TRUE(answered.status.ok()) << answered.status;
  ASSERT_EQ(answered.responses.size(), 2);
  const v1::MeasureResponse& wrong = answered.responses[0];
  EXPECT_EQ(wrong.id(), 7);
  EXPECT_EQ(wrong.verdict().outcome(), v1::Verdict::FAIL);
  EXPECT_EQ(wrong.verdict().policy(), "default");
  EXPECT_EQ(wrong.accuracy().worst_index(), 2);
  EXPECT_EQ(wrong.accuracy().worst_output(), 3);
  EXPECT_EQ(wrong.accuracy().worst_golden(), 3.5);
  EXPECT_EQ(answered.responses[1].verdict().policy(), "torch");

  v1::JudgeRequest judge;
  *judge.add_outputs()->mutable_accuracy() = wrong.accuracy();
  v1::JudgeResponse again;
  ASSERT_TRUE(Judge(judge, again).ok());
  EXPECT_EQ(again.verdicts(0).SerializeAsString(), wrong.verdict().SerializeAsString());
  for (const char* operation : {"mm", "relu", "softmax"}) {
    *judge.add_outputs() = judge.outputs(0);
    judge.mutable_outputs(judge.outputs_size() - 1)->set_operation(operation);
  }
  again.Clear();
  ASSERT_TRUE(Judge(judge, again).ok());
  std::vector<std::string> standards;
  for (const auto& each : again.standards()) standards.push_back(each.name() + " " + each.level());
  EXPECT_THAT(standards, testing::ElementsAre("benchmark L0", "ulp L2", "binary L0", "benchmark L0"));
}

TEST(MeasureTest, WhatCannotBeMeasuredIsAnAnswer) {
  v1::MeasureRequest shapes = Begin(1, v1::DTYPE_FLOAT32, 2);
  shapes.mutable_begin()->mutable_golden()->set_shape(0, 3);
  shapes.set_end(true);
  v1::MeasureRequest dtype = Begin(2, v1::DTYPE_FLOAT4_E2M1FN_X2, 2);
  dtype.set_end(true);
  const Answered answered = Ask({shapes, dtype});
  ASSERT_EQ(answered.responses.size(), 2) << answered.status;
  EXPECT_EQ(answered.responses[0].error(), "the shapes differ");
  EXPECT_THAT(answered.responses[1].error(), testing::HasSubstr("float4_e2m1fn_x2"));
  EXPECT_FALSE(answered.responses[1].has_verdict());
}

TEST(MeasureTest, AStreamOfAnotherFormIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Ask({Elements({1}, {1}, true)}).status));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask({Begin(1, v1::DTYPE_FLOAT32, 1), Begin(2, v1::DTYPE_FLOAT32, 1)}).status));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask({Begin(1, v1::DTYPE_FLOAT32, 2), Elements({1}, {1}, true)}).status));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask({Begin(1, v1::DTYPE_FLOAT32, 1), Elements({1, 2}, {1, 2}, true)}).status));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask({Begin(1, v1::DTYPE_FLOAT32, 2), Elements({1, 2}, {1}, true)}).status));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask({Begin(1, v1::DTYPE_FLOAT32, -1)}).status));
  v1::MeasureRequest policy = Begin(1, v1::DTYPE_FLOAT32, 1);
  policy.set_policy("lenient");
  EXPECT_THAT(Ask({policy}).status.message(),
              testing::HasSubstr("default, documented, torch, fp64-ratio, acc-check, cann"));
}

}  // namespace
}  // namespace msprobe::server
