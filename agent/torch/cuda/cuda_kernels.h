#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/stats/tensor_view.h"
#include "agent/torch/cuda/cuda_driver.h"

namespace msprobe::capture {

// The kernels of cuda_reduction.h on one CUDA device: statistics of a dense tensor in one launch, which reads it once.
// They come as PTX, which the driver compiles for the device.
//
// Threads: any.
class CudaKernels {
 public:
  // Whether this build has kernels: it was made with a clang that compiles for CUDA.
  static bool Built();
  // Loads the kernels for a device, by its ordinal among the visible ones. The driver is borrowed. Compiling may take a
  // second, and the device's primary context is created if nobody has. An error names the call and the driver's answer.
  static absl::StatusOr<std::unique_ptr<CudaKernels>> Load(const CudaDriver& driver, int ordinal);

  // Whether there is a kernel for the type: the types of ReducesOnDevice.
  static bool Takes(stats::DType dtype);
  // The elements behind each row of a tensor of so many elements; at most 2^20 a row, as DeviceRow has it.
  static std::vector<int64_t> PiecesOf(int64_t elements);

  // data: on the device, `elements` (at least 1) of them one after another, aligned as their type is. rows: on the
  // device, kRowStride bytes for each of PiecesOf(elements). Returns before it has run.
  absl::Status Launch(stats::DType dtype, const void* data, int64_t elements, void* rows, void* stream) const;

 private:
  explicit CudaKernels(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver& driver_;
  // Constant once loaded.
  void* context_ = nullptr;
  std::map<stats::DType, void*> functions_;
};

}  // namespace msprobe::capture
