#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

#include "agent/torch/device/device_row.h"

namespace msprobe::capture {

// Whether DeviceStatistics can reduce this type: floats of up to 32 bits, bool and signed integers, and uint8.
bool ReducesOnDevice(c10::ScalarType type);

// Statistics of a device's tensors by ATen's out= operators, on the current stream. Beside the tensor, they read and
// write memory that is allocated once: 24 MiB on the device for each DeviceStatistics. ATen's own reductions may take
// a few KiB from the backend's caching allocator meanwhile (partial results of a reduction over several blocks).
//
// One DeviceStatistics serves one stream, whose order keeps its scratch memory from being overwritten too early.
//
// Not thread-safe. Under QuietDispatch. Throws what libtorch throws, such as for an operator that a backend lacks.
class DeviceStatistics {
 public:
  // Flags are counted in floats, which are exact up to 2^24.
  static constexpr int64_t kPieceElements = int64_t{1} << 20;

  explicit DeviceStatistics(c10::Device device);

  // Launches the reductions of a tensor of at most kPieceElements elements, not 0, in any layout. `row` is a contiguous
  // tensor of sizeof(DeviceRow) bytes on the device.
  void Launch(const at::Tensor& piece, const at::Tensor& row);

  // Calls `visit` with parts of `tensor` of at most kPieceElements elements that together have each element once.
  static void ForEachPiece(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& visit);

 private:
  const at::Tensor values_;  // floats
  const at::Tensor masked_;  // floats
  const at::Tensor flags_;   // floats, [4, kPieceElements]
};

}  // namespace msprobe::capture
