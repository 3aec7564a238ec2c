#include "agent/capture/steps/step_numbers.h"

namespace msprobe::capture {
namespace {

// The value under a text, which is copied only where there is none.
template <typename Value>
Value& Entry(core::PooledTextMap<Value>& map, const std::string& text) {
  const auto found = map.find(text);
  return found != map.end() ? found->second : map.emplace(text, Value()).first->second;
}

}  // namespace

uint32_t StepNumbers::NextCount(const std::string& name, uint32_t slot) {
  if (slot >= counts_.size()) counts_.resize(slot + 1);
  return slot * kThreadStride + Entry(counts_[slot], name)++;
}

StepNumbers::Gradient StepNumbers::NextGradient(const std::string& module, const std::string& parameter,
                                                uint32_t token) {
  GradientRecord& record = Entry(gradients_, module);
  if (record.step != step_) {
    record = {.step = step_, .first_parameter = parameter, .latest = {.count = 0, .token = token}};
  } else if (record.first_parameter == parameter) {
    record.latest = {.count = record.latest.count + 1, .token = token};
  }
  return record.latest;
}

uint64_t StepNumbers::DebugOrdinal(const std::string& full_name) {
  const auto [ordinal, is_new] = debug_ordinals_.try_emplace(full_name, next_ordinal_);
  if (is_new) ++next_ordinal_;
  return ordinal->second;
}

void StepNumbers::EndStep() {
  ++step_;
  next_ordinal_ = 0;
  for (auto& slot : counts_) {
    for (auto& [name, count] : slot) count = 0;
  }
  debug_ordinals_.clear();
}

}  // namespace msprobe::capture
