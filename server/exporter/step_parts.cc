#include "server/exporter/step_parts.h"

#include <functional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "server/exporter/step_exporter.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// The records of a step that are of these cells, or those that are not.
class RecordsOfPart : public RecordSource {
 public:
  using Visit = absl::FunctionRef<absl::Status(const v1::Record&, uint64_t)>;

  RecordsOfPart(RecordSource& step, const absl::flat_hash_set<std::string>& cells, bool compiled)
      : step_(step), cells_(cells), compiled_(compiled) {}

  const std::string& run() const override { return step_.run(); }
  uint32_t step() const override { return step_.step(); }
  const v1::Rank& rank() const override { return step_.rank(); }
  uint32_t epoch() const override { return step_.epoch(); }
  State state() const override { return step_.state(); }
  const v1::CaptureSettings& settings() const override { return step_.settings(); }
  const v1::Hello& hello() const override { return step_.hello(); }

  absl::Status ForEachRecord(Visit visit) override { return step_.ForEachRecord(OfPart(visit)); }
  absl::Status ForEachRecordWithoutEdges(Visit visit) override {
    return step_.ForEachRecordWithoutEdges(OfPart(visit));
  }
  absl::Status ForEachRecordHead(Visit visit) override { return step_.ForEachRecordHead(OfPart(visit)); }
  bool may_have_payloads() override { return step_.may_have_payloads(); }
  absl::StatusOr<std::vector<v1::Frame>> Stack(uint64_t stack_id) override { return step_.Stack(stack_id); }
  absl::Status ReadPayload(std::string_view hash, absl::FunctionRef<absl::Status(std::string_view)> visit) override {
    return step_.ReadPayload(hash, visit);
  }
  std::vector<v1::Marker::Fault> faults() override { return step_.faults(); }
  std::vector<v1::Marker::Gap> gaps() override { return step_.gaps(); }

 private:
  std::function<absl::Status(const v1::Record&, uint64_t)> OfPart(Visit visit) const {
    return [this, visit](const v1::Record& record, uint64_t stack_id) {
      return Has(record.full_name()) ? visit(record, stack_id) : absl::OkStatus();
    };
  }

  bool Has(std::string_view full_name) const {
    for (size_t dot = full_name.find('.'); dot != std::string_view::npos; dot = full_name.find('.', dot + 1)) {
      if (cells_.contains(AbslView(full_name.substr(0, dot)))) return compiled_;
    }
    return !compiled_;
  }

  RecordSource& step_;
  const absl::flat_hash_set<std::string> cells_;
  const bool compiled_;
};

}  // namespace

std::vector<StepPart> PartsOf(RecordSource& step) {
  const std::string directory = StepDirectory(step.step(), step.rank());
  const auto& compiled_cells = step.settings().compiled_cells();
  std::vector<StepPart> parts;
  if (compiled_cells.empty()) {
    parts.push_back({directory, &step, nullptr});
    return parts;
  }
  const absl::flat_hash_set<std::string> cells(compiled_cells.begin(), compiled_cells.end());
  for (const bool compiled : {true, false}) {
    auto records = std::make_unique<RecordsOfPart>(step, cells, compiled);
    RecordSource* const shown = records.get();
    parts.push_back({Cat(compiled ? "graph/" : "pynative/", directory), shown, std::move(records)});
  }
  return parts;
}

std::string ToldDirectory(const v1::CaptureSettings& settings, uint32_t step) {
  return Cat(settings.compiled_cells().empty() ? "" : "pynative/", "step", step);
}

}  // namespace msprobe::server
