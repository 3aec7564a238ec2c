#include "agent/capture/filter/record_filter.h"

namespace msprobe::capture {

void RecordFilter::Judge(OpenRecord& record) {
  if (names_.active()) {
    record.selected = names_.Check(record.FullName());
  } else {
    record.selected = record.kind != core::RecordKind::kApi || selection_.active() || rules_.WantsRisk(record.risk);
  }
  record.selected &= record.in_select;
  record.wanted = record.selected && rules_.WantsDirection(record.direction);
  if (record.wanted && names_.active() && record.kind == core::RecordKind::kModule &&
      record.direction == core::Direction::kBackward) {
    modules_with_backward_.insert(*record.name);
  }
}

void RecordFilter::BeginModule(const OpenRecord& record) {
  if (names_.active()) names_.BeginModule(record.FullName());
}

void RecordFilter::EndModule(const OpenRecord& record) {
  if (names_.active()) names_.EndModule(record.FullName());
}

bool RecordFilter::KeepsGradients(const std::string& module) {
  if (!selection_.TakesModule(module)) return false;
  return !names_.active() || modules_with_backward_.contains(module) || names_.Check(module);
}

void RecordFilter::EndStep() {
  names_.Reset();
  modules_with_backward_.clear();
}

}  // namespace msprobe::capture
