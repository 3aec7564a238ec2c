#include "agent/capture/recorder.h"

#include <utility>

namespace msprobe::capture {

Recorder::Recorder(core::Config config, std::shared_ptr<core::Session> session, std::unique_ptr<TensorSource> source,
                   bool replays)
    : config_(std::move(config)),
      session_(std::move(session)),
      sampler_(config_.task == core::Task::kCheck ? std::make_unique<CallSampler>(config_.check) : nullptr),
      memory_(config_, session_.get(), sampler_.get(), {}, replays),
      source_(std::move(source)),
      diff_check_(config_.bench_path.empty() ? nullptr : std::make_unique<DiffCheck>(config_.diff_nums)),
      rules_(&config_, diff_check_.get()),
      opener_(config_, session_.get(), source_.get(), &rules_, &step_),
      producers_(config_.edges ? std::make_unique<Producers>() : nullptr),
      gradient_parts_(config_.edges ? std::make_unique<GradientParts>() : nullptr),
      emitter_(session_.get(), &step_, &opener_, diff_check_.get(), producers_.get()),
      faults_(session_.get()),
      scalars_(session_.get(), source_.get(), &faults_),
      series_(config_.monitor.ops, session_.get(), source_.get(), &faults_),
      gradients_(&config_.grad_probe, session_.get(), source_.get(), &memory_, &faults_) {}

TensorReading Recorder::Read(TensorRef tensor, bool save) const {
  TensorReading reading = source_->Read(tensor, save, memory_);
  if (producers_ == nullptr) return reading;
  reading.identity = source_->Identify(tensor);
  reading.sight = producers_->Look(reading.identity);
  return reading;
}

void Recorder::Stop() {
  step_.Stop();
  if (!step_.forked()) source_->Flush();
}

Recorder::StepContents Recorder::EndStep(uint32_t step, bool keep) {
  if (step_.forked()) return {};
  source_->Flush();
  if (keep) {
    session_->EndStep(step);
  } else {
    session_->DiscardStep(step);
  }
  const StepState::Contents contents = step_.End(step);
  if (sampler_ != nullptr) {
    const absl::Duration background = core::BackgroundTime();
    sampler_->EndStep(background - std::exchange(background_, background));
  }
  if (diff_check_ != nullptr) diff_check_->EndStep();
  source_->EndStep();
  if (producers_ != nullptr) producers_->EndStep();
  if (gradient_parts_ != nullptr) gradient_parts_->EndStep();
  const bool had_calls = opener_.EndStep();
  return {.passes = contents.passes, .calls = had_calls, .records = contents.records};
}

}  // namespace msprobe::capture
