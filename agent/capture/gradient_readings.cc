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
  Recorder::StartFragment(record, builder);
  if (recorder.WantsInput(core::Direction::kBackward)) {
    builder.Key("input");
    AddGradients(arriving, builder);
  }
  if (recorder.WantsOutput(core::Direction::kBackward)) {
    builder.Key("output");
    AddGradients(leaving, builder);
  }
  recorder.Emit(record, builder, core::kEnter | core::kExit);
}

void EmitBackward(Recorder& recorder, const Api& api, const OpenRecord& forward, const GradientReadings& arriving,
                  const GradientReadings& leaving) {
  OpenRecord record = recorder.BeginBackward(forward, true, api.risk, ThreadState::Get());
  recorder.Contain(record, [&] {
    if (!record.wanted) return recorder.EmitConstructOnly(record);
    EmitGradients(recorder, record, arriving, leaving);
  });
}

}  // namespace msprobe::capture
