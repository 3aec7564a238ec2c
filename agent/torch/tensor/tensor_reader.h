#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/reading/ahead_reader.h"
#include "agent/capture/reading/gradient_reading.h"
#include "agent/capture/reading/memory_reader.h"
#include "agent/capture/reading/remembered_statistics.h"
#include "agent/capture/reading/tensor_reading.h"
#include "agent/core/config/config.h"
#include "agent/torch/tensor/fresh_readings.h"

namespace msprobe::capture {

// Reads torch's tensors: finds the memory of host tensors, remembers their numbers, and launches readings of a device.
//
// Reading never dispatches an operator on a host tensor: it looks at the TensorImpl and its memory, so that no
// autograd, no RNG, no mode and no profiler notices. A tensor whose memory cannot be read so (meta, fake, sparse,
// batched, freed storage) gives a reading without numbers. The reading of a device's tensor has a pending leaf
// (DeviceReader); only a run that compares with another dump (bench_path) waits for it.
//
// Thread-safe; needs no GIL. Throws only what libtorch throws for a broken device.
class TensorReader {
 public:
  explicit TensorReader(core::Reuse reuse);

  // save: also keep the bytes. memory: which part is read, and how.
  TensorReading Read(const at::Tensor& tensor, bool save, const MemoryReader& memory) const;

  // A parameter of a model whose capture begins. When the first of those is captured, another thread begins to read the
  // others (AheadReader). Until then it is not known whether an optimizer is about to write them.
  void Expect(const at::Tensor& parameter) const;

  // As TensorSource::Sample.
  std::vector<double> Sample(const at::Tensor& tensor, size_t most) const;

  // A gradient, for task grad_probe (TensorSource::ReadGradient). Nothing of it is remembered. A device makes its signs
  // and intervals itself, by operators of ATen under QuietDispatch, and only they cross the bus.
  GradientReading ReadGradient(const at::Tensor& gradient, const core::GradProbeConfig& probe,
                               const MemoryReader& memory) const;

  // The step has ended: what outlives it may be remembered.
  void EndStep() const;
  RememberedStatistics::Counts remembered() const { return remembered_->counts(); }

 private:
  // Everything about the tensor but its numbers. False: its memory cannot be read.
  static bool Describe(const at::Tensor& tensor, const MemoryReader& memory, TensorReading& reading);
  void ReadHost(const at::Tensor& tensor, bool save, const MemoryReader& memory, TensorReading& reading) const;
  // The numbers of host memory, read or remembered.
  RememberedStatistics::Place SetLeaf(const at::Tensor& tensor, const stats::TensorView& view,
                                      const MemoryReader& memory, TensorReading& reading) const;
  // Where this is the first captured tensor of those that are expected, the others are read ahead.
  void ReadOthersAhead(const at::Tensor& first, const MemoryReader& memory) const;
  std::shared_ptr<core::Payload> KeepBytes(const RememberedStatistics::Place& place, const stats::TensorView& view,
                                           const MemoryReader& memory) const;

  // Of a replay, made at its first tensor.
  FreshReadings& fresh() const;

  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  const std::unique_ptr<RememberedStatistics> remembered_;
  mutable AheadReader ahead_;
  mutable std::atomic<bool> expects_{false};
  mutable absl::Mutex mu_;
  mutable std::vector<WeakTensor> expected_ ABSL_GUARDED_BY(mu_);
  mutable std::once_flag fresh_made_;
  mutable std::unique_ptr<FreshReadings> fresh_;
};

// The type of torch's tensors in dump.json (TensorReading::type).
inline constexpr std::string_view kTensorType = "torch.Tensor";

// msprobe.v1.DType of a scalar type; DTYPE_OTHER for what the wire has no number for.
uint8_t WireDType(c10::ScalarType type);

}  // namespace msprobe::capture
