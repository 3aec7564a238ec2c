#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "agent/capture/filter/call_sampler.h"
#include "agent/capture/reading/gradient_reading.h"
#include "agent/capture/reading/reading_threads.h"
#include "agent/capture/reading/request_rows.h"
#include "agent/capture/reading/tensor_reading.h"
#include "agent/core/config/config.h"
#include "agent/core/record.h"
#include "agent/core/session.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::capture {

// Reads memory as the configuration says: which part of a tensor, which numbers, and a copy of its bytes.
//
// A TensorSource finds where the elements of a framework's tensor lie and leaves the reading to this. Read does
// everything; the steps stand apart for sources that remember numbers or read a device.
//
// Thread-safe. Throws nothing.
class MemoryReader {
 public:
  // `session` gives room for bytes, `sampler` says which are kept (null: all). Both outlive the reader.
  // spread: what Measure also gathers. replays: for a pass of a step that runs twice,
  // which is compared by its checksums: Measure makes these alone.
  MemoryReader(const core::Config& config, core::Session* session, CallSampler* sampler = nullptr,
               Spread::Parts spread = {}, bool replays = false);

  core::SummaryMode mode() const { return mode_; }
  core::Session& session() const { return *session_; }
  // Numbers are compared while the program runs (bench_path), so a device's numbers are waited for.
  bool waits() const { return waits_; }
  bool replays() const { return replays_; }
  // The rows of a tensor to read. Looked at only with request_id in the configuration.
  RequestRows& rows() { return rows_; }

  // Whether the numbers of this msprobe.v1.DType are kept as doubles.
  bool KeepsDoubles(uint8_t dtype) const;
  // Cuts `shape`, which comes as the tensor's own `sizes`, to the rows and slices that are asked for. Gives the place
  // of the first element that is left, in elements from the tensor's first. `strides` are the tensor's, in elements.
  int64_t Cut(std::span<const int64_t> sizes, std::span<const int64_t> strides,
              absl::InlinedVector<int64_t, 6>& shape) const;
  // Sets the numbers and the checksum of host memory that holds at least one element. Gives how they are spread, or
  // null where that is not gathered.
  std::shared_ptr<const Spread> Measure(const stats::TensorView& view, core::Leaf& leaf) const;
  // Then numbers that are remembered from another reading do not do.
  bool gathers_spread() const { return spread_.any(); }
  // Whether the numbers of tensors that are captured soon may be made before (AheadReader): not where a tensor may be
  // left out or cut, nor where more than its numbers is made.
  bool reads_ahead() const { return reads_ahead_; }
  // A tensor without elements: its checksum is known, and it has no numbers.
  void MeasureNothing(core::Leaf& leaf) const;
  // Whether so many bytes of a tensor are kept. Asked once for each, before they are copied.
  bool Keeps(uint64_t bytes) const { return sampler_ == nullptr || sampler_->Keeps(bytes); }
  // Null: there is no room for them (counted by the session).
  std::shared_ptr<core::Payload> CopyBytes(const stats::TensorView& view) const;

  // All of this for a tensor in host memory: sets reading.shape, which is otherwise ignored, and reading.leaf. The
  // caller has set reading.dtype to view.dtype. save: also copy the bytes.
  void Read(const stats::TensorView& view, bool save, TensorReading& reading) const;
  // The same, with another Measure: for sources that remember numbers.
  using MeasurePart = absl::FunctionRef<std::shared_ptr<const Spread>(const stats::TensorView& part, core::Leaf& leaf)>;
  void Read(const stats::TensorView& view, bool save, TensorReading& reading, MeasurePart measure) const;

  // A gradient, for task grad_probe: sets the numbers of reading.gradient, whose dtype and shape the caller has set,
  // and the rest of reading where the dtype has signs. Slices do not apply.
  void ReadGradient(const stats::TensorView& view, const core::GradProbeConfig& probe, GradientReading& reading) const;

  // Memory that is no tensor of the framework (a numpy array, of `shape` and `strides`): read whole, statistics only.
  void ReadArray(const void* data, uint8_t dtype, std::span<const int64_t> shape, std::span<const int64_t> strides,
                 bool save, TensorReading& reading) const;

  // Bytes of tensors that Measure read, since the beginning: callers waited for them.
  uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  // Of these, bytes of tensors that several threads may read together.
  uint64_t bytes_shared() const { return bytes_shared_.load(std::memory_order_relaxed); }

 private:
  const core::SummaryMode mode_;
  const std::vector<core::SliceRule> slice_;
  const bool high_precision_;  // doubles for every dtype
  const bool waits_;
  const bool has_rows_;  // request_id is configured
  const Spread::Parts spread_;
  core::Session* const session_;
  CallSampler* const sampler_;
  const bool replays_;
  const bool shares_;
  const bool reads_ahead_;
  RequestRows rows_;
  mutable std::atomic<uint64_t> bytes_read_{0}, bytes_shared_{0};
  mutable ReadingThreads threads_;
};

}  // namespace msprobe::capture
