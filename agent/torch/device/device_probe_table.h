#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agent/stats/tensor_view.h"
#include "agent/torch/device/device_statistics.h"
#include "agent/torch/tensor/probe_table.h"

namespace msprobe::capture {

// Probes of one device's tensors. Each run reads the tensor on the current stream, by out= operators into the table's
// memory. That memory is allocated once, so a run is legal while a stream is captured into a graph, and is replayed
// with it. Only Gather waits for the device; it copies the used part of the memory once.
//
// A form is one shape and type that a probe's tensor has had, with its place in the memory. A form that a captured
// graph writes to stays as long as the table; the places of forms behind it are used again after Forget. Where there is
// no room for a form, its probe runs without numbers, which is counted as a fault.
//
// How a tensor is read: up to 64 KiB, or to keep its bytes, or where the device cannot reduce its type: its bytes are
// copied into the table, and the host computes the numbers and checksums. Else DeviceStatistics reduces it; then there
// is no checksum.
class DeviceProbeTable : public ProbeTable {
 public:
  DeviceProbeTable(std::shared_ptr<Recorder> recorder, c10::Device device, int64_t probes, size_t memory_bytes);

  void Run(const at::Tensor& x, const at::Tensor& slots, int64_t probe) noexcept override;
  void Switch(bool on) override;
  void KeepBytes(int64_t probe, bool keep) override;
  int64_t Gather() override;
  Found Take(int64_t probe) override;
  void Forget() override;

 private:
  struct Form {
    int64_t probe = 0;
    c10::ScalarType type{};
    std::vector<int64_t> sizes;
    std::vector<int64_t> piece_elements;  // empty: the bytes are there, row-major
    std::optional<size_t> offset;         // in the memory; none: there was no room
    size_t end = 0;
    bool keep = false;
    bool conjugate = false, negative = false;  // lazy bits that the copy does not have
    bool captured = false;                     // a graph writes to it
  };

  // The number of the form, from 1.
  int64_t FormOf(const at::Tensor& x, int64_t probe, bool captured) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Place(const at::Tensor& x, Form& form) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Launch(const at::Tensor& x, const Form& form) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  at::Tensor View(size_t offset, c10::ScalarType type, c10::IntArrayRef sizes) const;
  TensorReading Read(const Form& form) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  DeviceProbeTable(std::shared_ptr<Recorder> recorder, const at::Tensor& memory, int64_t probes);

  const at::Tensor memory_;  // bytes on the device; begins with the slots
  const c10::Device device_;
  DeviceStatistics statistics_ ABSL_GUARDED_BY(mu_);

  absl::Mutex mu_;
  bool on_ ABSL_GUARDED_BY(mu_) = true;
  std::vector<char> keep_ ABSL_GUARDED_BY(mu_);                      // by probe
  std::vector<std::vector<int64_t>> by_probe_ ABSL_GUARDED_BY(mu_);  // numbers of forms
  std::vector<Form> forms_ ABSL_GUARDED_BY(mu_);                     // [number - 1]
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;                             // of the memory
  at::Tensor host_ ABSL_GUARDED_BY(mu_);                             // the copy
  std::vector<int64_t> runs_before_ ABSL_GUARDED_BY(mu_);            // by probe, at the Gather before the last
  std::vector<int64_t> runs_ ABSL_GUARDED_BY(mu_);                   // at the last
};

}  // namespace msprobe::capture
