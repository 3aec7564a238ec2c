#pragma once

#include "agent/capture/compare/diff_check.h"
#include "agent/capture/open_record.h"
#include "agent/core/config/config.h"
#include "agent/core/record.h"

namespace msprobe::capture {

// The parts of a record that the configuration keeps: directions and sides (data_mode), and tensors' bytes (task,
// tensor_list, bench_path).
//
// Thread-safe.
class CaptureRules {
 public:
  // Both outlive this. diff_check: null without bench_path.
  CaptureRules(const core::Config* config, const DiffCheck* diff_check) : config_(*config), diff_check_(diff_check) {}

  bool WantsDirection(core::Direction direction) const;
  // Whether fields of this side are recorded at all. Task structure records none.
  bool WantsInput(core::Direction direction) const;
  bool WantsOutput(core::Direction direction) const;

  // Whether an API of this risk is recorded: by risk_level, at the levels that have APIs.
  bool WantsRisk(core::RiskLevel risk) const;

  // Whether the bytes of the record's tensors are kept.
  bool Saves(const OpenRecord& record) const;

 private:
  const core::Config& config_;
  const DiffCheck* const diff_check_;
};

}  // namespace msprobe::capture
