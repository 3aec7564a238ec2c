#include "agent/torch/tensor/probe_table.h"

#include <atomic>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "agent/core/str_cat.h"
#include "agent/torch/device/device_probe_table.h"
#include "agent/torch/strings/probe_operator.h"
#include "agent/torch/tensor/host_probe_table.h"

namespace msprobe::capture {
namespace {

struct Tables {
  absl::Mutex mu;
  std::vector<ProbeTable*> all ABSL_GUARDED_BY(mu);  // [id - 1]; graphs may run until the process ends
};

Tables& AllTables() {
  static Tables* const tables = new Tables;
  return *tables;
}

int64_t NextId() {
  static std::atomic<int64_t> last{0};
  return ++last;
}

}  // namespace

ProbeTable::ProbeTable(std::shared_ptr<Recorder> recorder, int64_t probes, at::Tensor slots)
    : id_(NextId()), probes_(probes), slots_(std::move(slots)), recorder_(std::move(recorder)) {}

ProbeTable* ProbeTable::Make(std::shared_ptr<Recorder> recorder, c10::Device device, int64_t probes,
                             size_t memory_bytes) {
  ProbeTable* made = nullptr;
  if (device.is_cpu()) {
    made = new HostProbeTable(std::move(recorder), probes);
  } else {
    made = new DeviceProbeTable(std::move(recorder), device, probes, memory_bytes);
  }
  Tables& tables = AllTables();
  absl::MutexLock lock(&tables.mu);
  tables.all.resize(std::max(tables.all.size(), static_cast<size_t>(made->id())));
  tables.all[static_cast<size_t>(made->id()) - 1] = made;
  return made;
}

ProbeTable* ProbeTable::Find(int64_t id) {
  Tables& tables = AllTables();
  absl::MutexLock lock(&tables.mu);
  if (id < 1 || id > static_cast<int64_t>(tables.all.size())) return nullptr;
  return tables.all[static_cast<size_t>(id) - 1];
}

void ProbeTable::Fault(int64_t probe, const char* message) noexcept {
  try {
    recorder_->session().ReportFault(recorder_->step().number(), core::Cat("probe ", probe), message);
  } catch (...) {
    // Nothing more can be done for it; its record goes without numbers.
  }
}

void RunProbe(const at::Tensor& x, const at::Tensor& slots, int64_t index, int64_t table) {
  if (ProbeTable* const found = ProbeTable::Find(table)) found->Run(x, slots, index);
}

}  // namespace msprobe::capture
