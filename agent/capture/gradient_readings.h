#pragma once

#include <optional>

#include "absl/container/inlined_vector.h"
#include "agent/capture/open_record.h"
#include "agent/capture/reading/tensor_reading.h"
#include "agent/capture/recorder.h"

namespace msprobe::capture {

// Gradients as read; nothing where a gradient is undefined.
using GradientReadings = absl::InlinedVector<std::optional<TensorReading>, 1>;

// Puts readings into `builder` as a list, null for nothing.
void AddGradients(const GradientReadings& gradients, FragmentBuilder& builder);

// Emits the whole fields of a backward record that has begun and is wanted: gradients that arrived, gradients that
// leave.
void EmitGradients(Recorder& recorder, OpenRecord& record, const GradientReadings& arriving,
                   const GradientReadings& leaving);

// Begins the backward record of an API call and emits it whole.
void EmitBackward(Recorder& recorder, const OpenRecord& forward, const GradientReadings& arriving,
                  const GradientReadings& leaving);

}  // namespace msprobe::capture
