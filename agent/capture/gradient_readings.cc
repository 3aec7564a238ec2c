#include "agent/capture/gradient_readings.h"

#include "agent/capture/thread_state.h"

namespace msprobe::capture {

void AddGradients(const GradientReadings& gradients, FragmentBuilder& builder) {
  builder.BeginList();
  for (const std::optional<TensorReading>& gradient : gradients) {
    if (gradient) {
      builder.Tensor(*gradient);
    } else {
      builder.None();
    }
  }
  builder.End();
}

void EmitGradients(Recorder& recorder, OpenRecord& record, const GradientReadings& arriving,
                   const GradientReadings& leaving) {
  FragmentBuilder& builder = ThreadState::Get().builder;
  FragmentEmitter::Start(record, builder);
  if (recorder.rules().WantsInput(core::Direction::kBackward)) {
    builder.Key("input");
    AddGradients(arriving, builder);
  }
  if (recorder.rules().WantsOutput(core::Direction::kBackward)) {
    builder.Key("output");
    AddGradients(leaving, builder);
  }
  recorder.emitter().Emit(record, builder, core::kEnter | core::kExit);
}

void EmitBackward(Recorder& recorder, const OpenRecord& forward, const GradientReadings& arriving,
                  const GradientReadings& leaving) {
  OpenRecord record = recorder.opener().BeginBackward(forward, ThreadState::Get());
  recorder.faults().Contain(record, [&] {
    if (!record.wanted) return recorder.emitter().EmitConstructOnly(record);
    EmitGradients(recorder, record, arriving, leaving);
  });
}

}  // namespace msprobe::capture
