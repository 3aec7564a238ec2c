#pragma once

#include <optional>

#include "agent/capture/reading/tensor_reading.h"

namespace msprobe::capture {

// What task grad_probe keeps of one gradient.
struct GradientReading {
  TensorReading gradient;               // its numbers, and at level L0 a checksum (stats::Crc32AsFloat32); no bytes
  std::optional<TensorReading> signs;   // uint8: stats::WriteSigns, with their bytes
  std::optional<TensorReading> counts;  // int64: stats::CountIntervals, with their bytes
};

}  // namespace msprobe::capture
