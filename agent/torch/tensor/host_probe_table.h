#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agent/torch/tensor/probe_table.h"
#include "agent/torch/tensor/tensor_reader.h"

namespace msprobe::capture {

// Probes of host tensors. A probe reads its tensor while the graph runs, in the same pass as eager capture. Bytes are
// kept under the session's memory ceiling, as its loss policy says.
//
// No reading is remembered for the next one, because compiled code writes memory again without telling anybody.
class HostProbeTable : public ProbeTable {
 public:
  HostProbeTable(std::shared_ptr<Recorder> recorder, int64_t probes);

  void Run(const at::Tensor& x, const at::Tensor& slots, int64_t probe) noexcept override;
  void Switch(bool on) override;
  void KeepBytes(int64_t probe, bool keep) override;
  int64_t Gather() override;
  Found Take(int64_t probe) override;
  void Forget() override;

 private:
  struct Probe {
    bool keep = false;
    int64_t runs_before = 0;  // of the slot, at the last Gather
    TensorReading reading;    // of the run under way
    Found found;
  };

  absl::Mutex mu_;
  std::vector<Probe> probes_ ABSL_GUARDED_BY(mu_);
  // Reads for the recorder of this configuration, and remembers nothing.
  struct Reader {
    explicit Reader(Recorder& recorder) : tensors(core::Reuse::kOff), memory(recorder.config(), &recorder.session()) {}
    const TensorReader tensors;
    const MemoryReader memory;
  };
  std::shared_ptr<const Reader> reader_ ABSL_GUARDED_BY(mu_);
  const Recorder* read_for_ ABSL_GUARDED_BY(mu_) = nullptr;  // the recorder that reader_ was made for
};

}  // namespace msprobe::capture
