#include <optional>

#include "server/analysis/check/benchmark_level.h"
#include "server/format/cat.h"
#include "server/query/accuracy_message.h"
#include "server/query/analysis_context.h"

namespace msprobe::server {
namespace {

TensorDescription DescriptionOf(const v1::TensorContent& content) {
  TensorDescription description;
  description.dtype = content.dtype();
  description.shape.assign(content.shape().begin(), content.shape().end());
  if (content.scale() != 0) description.scale = content.scale();
  description.zero_point = content.zero_point();
  return description;
}

// The output under way.
class Output {
 public:
  static absl::StatusOr<Output> Begin(const v1::MeasureRequest::Begin& begin) {
    Output output;
    output.id_ = begin.id();
    output.operation_ = begin.operation();
    const TensorDescription target = DescriptionOf(begin.output());
    const TensorDescription golden = DescriptionOf(begin.golden());
    auto size = ContentSize(target);
    if (!size.ok()) return size.status();
    auto comparison = AccuracyComparison::Start(target, golden);
    if (!comparison.ok()) {
      output.error_ = std::string(comparison.status().message());
    } else if (target.shape != golden.shape) {
      output.error_ = "the shapes differ";
    } else {
      output.comparison_ = std::make_unique<AccuracyComparison>(*std::move(comparison));
      output.left_ = *size / output.comparison_->target_size();
    }
    if (output.comparison_ && begin.has_plain()) {
      auto plain = AccuracyComparison::Start(DescriptionOf(begin.plain()), golden);
      if (plain.ok()) output.plain_ = std::make_unique<AccuracyComparison>(*std::move(plain));
    }
    return output;
  }

  absl::Status Add(const v1::MeasureRequest::Elements& elements) {
    if (!comparison_) return absl::OkStatus();
    const size_t count = elements.output().size() / comparison_->target_size();
    const bool plain_fits = !plain_ || elements.plain().size() == count * plain_->target_size();
    if (count > left_ || elements.output().size() != count * comparison_->target_size() ||
        elements.golden().size() != count * comparison_->golden_size() || !plain_fits) {
      return absl::InvalidArgumentError(
          Cat("output ", id_, ": a chunk has ", elements.output().size(), ", ", elements.golden().size(), " and ",
              elements.plain().size(), " bytes; all must hold equally many elements, and ", left_, " are missing"));
    }
    comparison_->Add(elements.output().data(), elements.golden().data(), count);
    if (plain_) plain_->Add(elements.plain().data(), elements.golden().data(), count);
    left_ -= count;
    return absl::OkStatus();
  }

  absl::StatusOr<v1::MeasureResponse> End(const Policy& policy) {
    v1::MeasureResponse response;
    response.set_id(id_);
    response.set_error(error_);
    if (!comparison_) return response;
    if (left_ != 0)
      return absl::InvalidArgumentError(Cat("output ", id_, " ends, and ", left_, " elements are missing"));
    CheckedOutput checked{operation_, comparison_->Finish(), std::nullopt};
    if (plain_) checked.plain = plain_->Finish();
    Fill(checked.accuracy, *response.mutable_accuracy());
    if (checked.plain) Fill(*checked.plain, *response.mutable_plain());
    Fill(policy.judge(checked), policy, *response.mutable_verdict());
    return response;
  }

 private:
  uint64_t id_ = 0;
  std::string operation_;
  std::string error_;
  uint64_t left_ = 0;  // elements
  std::unique_ptr<AccuracyComparison> comparison_;
  std::unique_ptr<AccuracyComparison> plain_;
};

}  // namespace

absl::Status Measure(const Receive<v1::MeasureRequest>& receive, const Send<v1::MeasureResponse>& send) {
  const Policy* policy = Policies().data();
  std::optional<Output> output;
  v1::MeasureRequest request;
  while (receive(request)) {
    if (!request.policy().empty()) {
      auto asked = AskedPolicy(request.policy());
      if (!asked.ok()) return asked.status();
      policy = *asked;
    }
    if (request.has_begin()) {
      if (output) return absl::InvalidArgumentError("an output begins before the last one has ended");
      auto begun = Output::Begin(request.begin());
      if (!begun.ok()) return begun.status();
      output = *std::move(begun);
    } else if (request.has_elements()) {
      if (!output) return absl::InvalidArgumentError("elements come before an output has begun");
      if (absl::Status status = output->Add(request.elements()); !status.ok()) return status;
    }
    if (!request.end()) continue;
    if (!output) return absl::InvalidArgumentError("an output ends that has not begun");
    auto response = output->End(*policy);
    if (!response.ok()) return response.status();
    output.reset();
    if (!send(*response)) return absl::CancelledError("the client is gone");
  }
  return absl::OkStatus();
}

absl::Status Judge(const v1::JudgeRequest& request, v1::JudgeResponse& response) {
  auto policy = AskedPolicy(request.policy());
  if (!policy.ok()) return policy.status();
  for (const v1::JudgeRequest::Output& output : request.outputs()) {
    CheckedOutput checked{output.operation(), AccuracyOf(output.accuracy()), std::nullopt};
    if (output.has_plain()) checked.plain = AccuracyOf(output.plain());
    Fill((*policy)->judge(checked), **policy, *response.add_verdicts());
    v1::JudgeResponse::Standard& standard = *response.add_standards();
    standard.set_name(std::string(DocumentedStandard(checked)));
    standard.set_level(std::string(LevelOf(checked.operation).name));
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
