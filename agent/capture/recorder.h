#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "agent/capture/compare/diff_check.h"
#include "agent/capture/edges/gradient_parts.h"
#include "agent/capture/edges/producers.h"
#include "agent/capture/faults.h"
#include "agent/capture/filter/call_sampler.h"
#include "agent/capture/filter/capture_rules.h"
#include "agent/capture/fragments/fragment_emitter.h"
#include "agent/capture/gradient_probe.h"
#include "agent/capture/reading/memory_reader.h"
#include "agent/capture/reading/tensor_source.h"
#include "agent/capture/record_opener.h"
#include "agent/capture/scalar_log.h"
#include "agent/capture/steps/step_state.h"
#include "agent/capture/tensor_series.h"
#include "agent/core/background_thread.h"
#include "agent/core/config/config.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// Turns the calls of a framework into records of one session. It ties the parts that a call passes, in this order:
//
//   step()     whether calls are captured now
//   opener()   begins a record: its name, numbers, parent, and whether it is kept
//   rules()    which of its sides and bytes are kept
//   Read       reads its tensors
//   emitter()  emits its fields
//   faults()   contains what goes wrong on the way
//
// scalars(), series() and gradients() stand beside them: what a program logs, the statistics that task monitor takes of
// tensors, and what an optimizer is about to take, belong to no call and need no step that is captured.
//
// The framework behind the calls is known to the TensorSource alone.
//
// Threads: every method from any thread, with or without the GIL. Nothing here throws but what the source throws while
// it reads a tensor; callers contain it (Faults::Contain).
class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  // `source` is not null. replays: as in MemoryReader.
  Recorder(core::Config config, std::shared_ptr<core::Session> session, std::unique_ptr<TensorSource> source,
           bool replays = false);

  const core::Config& config() const { return config_; }
  core::Session& session() { return *session_; }
  TensorSource& source() { return *source_; }
  MemoryReader& memory() { return memory_; }
  const CaptureRules& rules() const { return rules_; }
  StepState& step() { return step_; }
  RecordOpener& opener() { return opener_; }
  FragmentEmitter& emitter() { return emitter_; }
  Faults& faults() { return faults_; }
  ScalarLog& scalars() { return scalars_; }
  TensorSeries& series() { return series_; }
  GradientProbe& gradients() { return gradients_; }
  CallSampler* sampler() { return sampler_.get(); }      // null but for task check
  DiffCheck* diff_check() { return diff_check_.get(); }  // null without bench_path

  // Reads a tensor of the source's framework, and sees where it came from. save: also keep its bytes
  // (OpenRecord::save).
  TensorReading Read(TensorRef tensor, bool save) const;

  // The records that gave gradients to be added up; null without edges.
  GradientParts* gradient_parts() { return gradient_parts_.get(); }

  // Nothing is captured until step().Start or GoOn. Stop ends that, and submits what is gathered for a device.
  void Stop();

  // The contents of a step.
  struct StepContents {
    bool passes = false;   // forward passes of the root module
    bool calls = false;    // calls that are captured, whether or not a filter wanted them
    bool records = false;  // records that stand in dump.json
  };
  // Ends `step` (or forgets it), and resets counts, ordinals and tokens.
  StepContents EndStep(uint32_t step, bool keep);

 private:
  const core::Config config_;
  const std::shared_ptr<core::Session> session_;
  const std::unique_ptr<CallSampler> sampler_;
  absl::Duration background_ = core::BackgroundTime();  // of the step before; belongs to EndStep
  MemoryReader memory_;
  const std::unique_ptr<TensorSource> source_;
  const std::unique_ptr<DiffCheck> diff_check_;
  const CaptureRules rules_;
  StepState step_;
  RecordOpener opener_;
  const std::unique_ptr<Producers> producers_;  // null: "edges" is off, as is the next
  const std::unique_ptr<GradientParts> gradient_parts_;
  FragmentEmitter emitter_;
  Faults faults_;
  ScalarLog scalars_;
  TensorSeries series_;
  GradientProbe gradients_;
};

}  // namespace msprobe::capture
