#include "agent/capture/filter/capture_rules.h"

#include <algorithm>
#include <string>

namespace msprobe::capture {

bool CaptureRules::WantsDirection(core::Direction direction) const {
  return direction == core::Direction::kForward ? config_.forward : config_.backward;
}

bool CaptureRules::WantsInput(core::Direction direction) const {
  return config_.task != core::Task::kStructure && config_.input && WantsDirection(direction);
}

bool CaptureRules::WantsOutput(core::Direction direction) const {
  return config_.task != core::Task::kStructure && config_.output && WantsDirection(direction);
}

bool CaptureRules::WantsRisk(core::RiskLevel risk) const {
  if (config_.level != core::Level::kL1 && config_.level != core::Level::kMix) return true;
  switch (config_.risk_level) {
    case core::RiskLevel::kAll:
      return true;
    case core::RiskLevel::kFocus:
      return risk != core::RiskLevel::kAll;  // of an API, kAll means: only shown when all are
    case core::RiskLevel::kCore:
      return risk == core::RiskLevel::kCore;
  }
  return true;
}

bool CaptureRules::Saves(const OpenRecord& record) const {
  if (diff_check_ != nullptr) return diff_check_->comparing();
  if (config_.task == core::Task::kTensor || config_.task == core::Task::kCheck) return true;
  if (config_.tensor_list.empty() || config_.level == core::Level::kDebug) return false;
  const std::string full_name = record.FullName();
  return std::any_of(config_.tensor_list.begin(), config_.tensor_list.end(),
                     [&](const std::string& part) { return full_name.find(part) != std::string::npos; });
}

}  // namespace msprobe::capture
