#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <vector>

#include "agent/capture/fragment_builder.h"
#include "agent/capture/request_rows.h"
#include "agent/core/config/config.h"
#include "agent/core/session.h"
#include "agent/torch/tensor/remembered_statistics.h"

namespace msprobe::capture {

// Reads tensors as the configuration says: statistics, a checksum, a copy of the bytes.
//
// Reading never dispatches an operator on a host tensor: it looks at the TensorImpl and its memory, so that no
// autograd, no RNG, no mode and no profiler notices. A tensor whose memory cannot be read so (meta, fake, sparse,
// batched, freed storage) gives a reading without numbers. Of a device's tensor the reading's leaf is pending
// (DeviceReader); only a run that compares with another dump (bench_path) waits for it.
//
// Thread-safe; needs no GIL. Throws only what libtorch throws for a broken device.
class TensorReader {
 public:
  // `session` gives room for payloads; rows, which may be null, are those of the request to read. Both outlive the
  // reader.
  TensorReader(const core::Config& config, core::Session* session, const RequestRows* rows = nullptr);

  // save: also keep the bytes, if the task or tensor_list says so for this record.
  TensorReading Read(const at::Tensor& tensor, bool save) const;

  // The step has ended: what outlives it may be remembered.
  void EndStep() const { remembered_->EndStep(); }
  // Bytes of host tensors that were read, not remembered, since the beginning.
  uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  RememberedStatistics::Counts remembered() const { return remembered_->counts(); }

  // The same for memory that is no tensor (a numpy array). No slices, no checksum; it is read at every call.
  void ReadArray(const void* data, uint8_t dtype, std::span<const int64_t> shape, std::span<const int64_t> strides,
                 bool save, TensorReading& reading) const;

 private:
  // Cuts reading.shape, which is the tensor's, to the rows and slices asked for; gives the offset of the first element
  // of what is left from the tensor's first, in elements.
  int64_t Select(const at::Tensor& tensor, TensorReading& reading) const;
  void ReadHost(const at::Tensor& tensor, bool save, TensorReading& reading) const;
  void ReadDevice(const at::Tensor& tensor, bool save, TensorReading& reading) const;
  // The numbers of host memory, read or remembered.
  RememberedStatistics::Place SetLeaf(const at::Tensor& tensor, const stats::TensorView& view, core::Leaf& leaf) const;
  std::shared_ptr<core::Payload> KeepBytes(const RememberedStatistics::Place& place,
                                           const stats::TensorView& view) const;
  std::shared_ptr<core::Payload> CopyBytes(const stats::TensorView& view) const;

  const core::SummaryMode summary_mode_;
  const std::vector<core::SliceRule> slice_;
  const bool high_precision_;  // doubles for every dtype
  const bool waits_;           // for a device: what is compared with another dump is needed at once
  const RequestRows* const rows_;
  core::Session* const session_;
  const std::unique_ptr<RememberedStatistics> remembered_;
  mutable std::atomic<uint64_t> bytes_read_{0};
};

// msprobe.v1.DType of a scalar type; DTYPE_OTHER for what the wire has no number for.
uint8_t WireDType(c10::ScalarType type);

}  // namespace msprobe::capture
