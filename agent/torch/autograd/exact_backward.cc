#include "agent/torch/autograd/exact_backward.h"

#include <ATen/SequenceNumber.h>

#include "agent/torch/autograd/autograd_hooks.h"
#include "agent/torch/strings/passage.h"

namespace msprobe::capture {
namespace {

using torch::autograd::variable_list;

}  // namespace

ExactBackward::ExactBackward(std::shared_ptr<Recorder> recorder, OpenRecord forward)
    : recorder_(std::move(recorder)), forward_(std::move(forward)) {
  forward_.passes = std::make_shared<PassCount>();
  Entered(at::sequence_number::peek());
}

std::vector<at::Tensor> ExactBackward::PassInputs(const std::vector<at::Tensor>& inputs) {
  if (inputs.empty()) return {};
  std::vector<at::Tensor> passed = PassThrough(inputs);
  inputs_ = inputs.size();
  passed.front().grad_fn()->add_post_hook(
      MakePostHook([call = std::static_pointer_cast<ExactBackward>(shared_from_this())](
                       const variable_list& leaving, const variable_list&) { call->Left(leaving); }));
  return passed;
}

std::vector<at::Tensor> ExactBackward::PassOutputs(const std::vector<at::Tensor>& outputs) {
  if (outputs.empty()) return {};
  std::vector<at::Tensor> passed = PassThrough(outputs);
  passed.front().grad_fn()->add_pre_hook(
      MakePreHook([call = std::static_pointer_cast<ExactBackward>(shared_from_this())](const variable_list& arriving) {
        call->Arrived(arriving);
      }));
  return passed;
}

void ExactBackward::Arrived(const std::vector<at::Tensor>& gradients) {
  if (!recorder_->step().capturing()) return;
  const std::lock_guard lock(mu_);
  recorder_->faults().Contain(forward_, [&] {
    ThreadState& thread = ThreadState::Get();
    backward_ = recorder_->opener().BeginBackward(forward_, thread);
    recorder_->opener().PushModule(thread, nullptr, backward_);
    open_ = true;
    closed_ = false;
    if (backward_.wanted) {
      FragmentEmitter::Start(backward_, thread.builder);
      if (recorder_->rules().WantsInput(core::Direction::kBackward)) {
        thread.builder.Key("input");
        AddGradients(ReadGradients(*recorder_, backward_.save, gradients), thread.builder);
      }
      recorder_->emitter().Emit(backward_, thread.builder, core::kEnter);
    }
    if (inputs_ == 0) return Complete({});
    // What needs no gradient of the inputs (autograd.grad of parameters alone) never comes to them.
    Open();
  });
}

void ExactBackward::Left(const std::vector<at::Tensor>& gradients) {
  if (!recorder_->step().capturing()) return;
  const std::lock_guard lock(mu_);
  recorder_->faults().Contain(forward_, [&] {
    if (!open_) return;  // flows to the input without passing the outputs
    Complete(backward_.wanted ? ReadGradients(*recorder_, backward_.save, gradients) : GradientReadings());
  });
}

void ExactBackward::Complete(const GradientReadings& left) {
  open_ = false;
  ThreadState& thread = ThreadState::Get();
  if (backward_.wanted) {
    FragmentEmitter::Start(backward_, thread.builder);
    if (recorder_->rules().WantsOutput(core::Direction::kBackward)) {
      thread.builder.Key("output");
      AddGradients(left, thread.builder);
    }
    recorder_->emitter().Emit(backward_, thread.builder, core::kExit);
  } else {
    recorder_->emitter().EmitConstructOnly(backward_);
  }
  Close();
}

void ExactBackward::Close() {
  if (closed_) return;
  closed_ = true;
  recorder_->opener().PopModule(ThreadState::Get(), backward_);
}

bool ExactBackward::CanEnd(bool pass_ended) {
  const std::lock_guard lock(mu_);
  return open_ && (pass_ended || !closed_);
}

bool ExactBackward::End(bool pass_ended) {
  const std::lock_guard lock(mu_);
  if (pass_ended) {
    recorder_->faults().Contain(forward_, [&] { Complete(GradientReadings(inputs_)); });
  } else {
    Close();
  }
  return pass_ended;
}

}  // namespace msprobe::capture
