#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/capture/recorder.h"
#include "agent/core/record.h"
#include "agent/torch/tensor/probe_table.h"

namespace msprobe::capture {

// One call as it was traced: its names and nesting, with probes where tensors stand. Emitted at the end of every step
// in which its graph may have run.
struct GraphRecord {
  struct Field {
    enum class Kind : uint8_t { kKey, kList, kDict, kEnd, kNone, kBoolean, kInteger, kFloat, kString, kProbe, kTensor };
    Kind kind = Kind::kNone;
    std::string text;    // kKey, kString
    int64_t number = 0;  // kBoolean, kInteger; kProbe: its index
    double real = 0;
    ProbeTable* table = nullptr;  // kProbe
    bool requires_grad = false;   // kProbe: as traced
    // kProbe of a parameter: its last reading. It is read again only when it may have changed. Null: not a parameter.
    std::shared_ptr<TensorReading> last;
    at::Tensor tensor;  // kTensor: read when the step ends (a parameter)
  };

  Api api;  // its name is the record's, of a module too
  bool is_module = false;
  uint32_t count = 0;
  std::string parent;  // full name; empty: none
  std::vector<core::Frame> frames;
  std::vector<Field> enter, exit;
};

// Emits the records of a step from the readings that the tables have gathered. Each record has "captured": true and
// "runs", which says how often it ran in the step. With 0 runs its tensors have no numbers: its graph did not run.
//
// Not thread-safe; one recorder at a time.
class GraphStep {
 public:
  explicit GraphStep(std::shared_ptr<Recorder> recorder);

  // A module begins, makes its calls, and ends. An API begins and ends at once.
  void Begin(const GraphRecord& record);
  void End(const GraphRecord& record);

  uint64_t missed() const { return missed_; }  // records whose graph did not run

 private:
  // Puts the fields into the builder. Returns how often the probed operators ran; nullopt without a probe.
  std::optional<uint64_t> Fill(const std::vector<GraphRecord::Field>& fields, bool save, FragmentBuilder& builder);
  const ProbeTable::Found& Of(ProbeTable* table, int64_t probe);

  struct Open {
    OpenRecord record;
    bool was_wanted = false;
    std::optional<uint64_t> runs;
  };
  const std::shared_ptr<Recorder> recorder_;
  std::map<const GraphRecord*, Open> open_;
  std::map<std::pair<ProbeTable*, int64_t>, ProbeTable::Found> found_;  // a probe may stand in several records
  FragmentBuilder builder_;
  uint64_t missed_ = 0;
};

}  // namespace msprobe::capture
