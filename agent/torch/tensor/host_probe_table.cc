#include "agent/torch/tensor/host_probe_table.h"

#include <ATen/ATen.h>

#include <utility>

namespace msprobe::capture {

HostProbeTable::HostProbeTable(std::shared_ptr<Recorder> recorder, int64_t probes)
    : ProbeTable(std::move(recorder), probes, at::zeros({SlotOf(probes)}, at::TensorOptions(c10::kLong))),
      probes_(static_cast<size_t>(probes)) {
  Switch(true);
}

void HostProbeTable::Run(const at::Tensor& x, const at::Tensor& slots, int64_t probe) noexcept {
  try {
    auto* const cells = static_cast<int64_t*>(slots.unsafeGetTensorImpl()->mutable_data());
    if (!InRange(probe) || cells[0] == 0) return;
    bool keep = false;
    std::shared_ptr<const Reader> reader;
    {
      absl::MutexLock lock(&mu_);
      if (read_for_ != &recorder()) {
        reader_ = std::make_shared<const Reader>(recorder());
        read_for_ = &recorder();
      }
      reader = reader_;
      keep = probes_[static_cast<size_t>(probe)].keep;
    }
    TensorReading reading = reader->tensors.Read(x, keep, reader->memory);
    absl::MutexLock lock(&mu_);
    ++cells[SlotOf(probe)];
    probes_[static_cast<size_t>(probe)].reading = std::move(reading);
  } catch (const std::exception& error) {
    Fault(probe, error.what());
  }
}

void HostProbeTable::Switch(bool on) { static_cast<int64_t*>(slots().mutable_data_ptr())[0] = on ? 1 : 0; }

void HostProbeTable::KeepBytes(int64_t probe, bool keep) {
  absl::MutexLock lock(&mu_);
  if (InRange(probe)) probes_[static_cast<size_t>(probe)].keep = keep;
}

int64_t HostProbeTable::Gather() {
  int64_t ran = 0;
  const auto* const cells = static_cast<const int64_t*>(slots().const_data_ptr());
  absl::MutexLock lock(&mu_);
  for (size_t i = 0; i < probes_.size(); ++i) {
    Probe& probe = probes_[i];
    const int64_t runs = cells[SlotOf(static_cast<int64_t>(i))];
    if (runs == probe.runs_before) continue;
    probe.found = Found{.runs = static_cast<uint64_t>(runs - probe.runs_before),
                        .reading = std::exchange(probe.reading, TensorReading())};
    probe.runs_before = runs;
    ++ran;
  }
  return ran;
}

ProbeTable::Found HostProbeTable::Take(int64_t probe) {
  absl::MutexLock lock(&mu_);
  if (!InRange(probe)) return {};
  return std::exchange(probes_[static_cast<size_t>(probe)].found, Found());
}

void HostProbeTable::Forget() {
  absl::MutexLock lock(&mu_);
  for (Probe& probe : probes_) {
    if (probe.found.runs != 0) probe.found = Found();
  }
}

}  // namespace msprobe::capture
