#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/capture/steps/pass_count.h"
#include "agent/core/config/config.h"
#include "agent/core/record.h"

namespace msprobe::capture {

// One function whose calls are recorded. Lives as long as the process.
struct Api {
  std::string name;  // "Functional.linear"
  core::RiskLevel risk = core::RiskLevel::kFocus;
  bool is_dropout = false;
  bool is_distributed = false;  // the output is the arguments after the call
  std::vector<int> ignored_inputs;
  std::vector<int> ignored_outputs;
  std::string ignored_keyword;
};

// A record that has begun: its identity, its place, and whether it is wanted. Small; copied into backward hooks.
struct OpenRecord {
  std::shared_ptr<const std::string> name;  // without count and direction
  core::RecordKind kind = core::RecordKind::kApi;
  core::Direction direction = core::Direction::kForward;
  core::RiskLevel risk = core::RiskLevel::kAll;  // of an API
  uint32_t step = 0;
  uint32_t token = 0;
  uint32_t count = 0;
  uint32_t pass = 0;                  // of a backward record: its number among the passes over the same forward call
  std::shared_ptr<PassCount> passes;  // of a forward record: null where no backward will begin
  uint64_t ordinal = 0;
  uint64_t begun = 0;  // the ordinal at its begin
  uint32_t thread = 0;
  core::ParentId parent = 0;
  core::ParentId self = 0;    // its own id as a parent, from PushModule on
  bool in_select = true;      // by select
  bool selected = false;      // by select, scope, list and risk level
  bool wanted = false;        // stands in dump.json: it is selected, and data_mode names its direction
  bool in_construct = false;  // stands in construct.json
  bool entered = false;       // its ENTER was emitted with fields
  bool save = false;          // keep the tensors' bytes
  bool touched = false;       // a stage of the chain takes part in the call (CallStage)
  bool recompute = false;     // belongs to the second forward of activation checkpointing

  // "Functional.linear.0.forward"
  std::string FullName() const;
  void AppendFullName(std::string* text) const;
};

}  // namespace msprobe::capture
