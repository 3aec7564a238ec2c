#pragma once

#include <string>

#include "absl/container/flat_hash_set.h"
#include "agent/capture/filter/call_selection.h"
#include "agent/capture/filter/capture_rules.h"
#include "agent/capture/filter/name_filter.h"
#include "agent/capture/open_record.h"
#include "agent/core/config/config.h"

namespace msprobe::capture {

// Decides which records stand in dump.json. Where scope, list or select is configured, they decide (NameFilter,
// CallSelection), all that are; elsewhere the risk of an API does. data_mode then leaves out directions.
//
// Not thread-safe: RecordOpener guards it.
class RecordFilter {
 public:
  // `rules` outlives this.
  RecordFilter(const core::Config& config, const CaptureRules* rules)
      : rules_(*rules), names_(config), selection_(config) {}

  CallSelection& selection() { return selection_; }

  // Sets `selected` and `wanted`. The record has `in_select`. Called once where a call begins and once where it ends.
  void Judge(OpenRecord& record);
  // Whether the end of a scope between two calls can change what Judge says.
  bool changes() const { return names_.active(); }

  // A module's forward or backward begins, before it is judged, and ends.
  void BeginModule(const OpenRecord& record);
  void EndModule(const OpenRecord& record);

  // Whether the gradients of a module's parameters are kept: the module's backward was, or the filter names the module.
  bool KeepsGradients(const std::string& module);

  void EndStep();

 private:
  const CaptureRules& rules_;
  NameFilter names_;
  CallSelection selection_;
  absl::flat_hash_set<std::string> modules_with_backward_;  // kept in this step; only where scope or list is configured
};

}  // namespace msprobe::capture
