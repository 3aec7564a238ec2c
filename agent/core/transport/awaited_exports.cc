#include "agent/core/transport/awaited_exports.h"

#include <utility>

#include "agent/core/str_cat.h"

namespace msprobe::core {

void AwaitedExports::Packed(const v1::Marker& marker, std::optional<uint32_t> open_step, Place place) {
  if (!open_step.has_value()) {
    // Nothing was captured of a step that is not open: no export of it will be reported. What comes first of a left
    // session may be the end of a step that its server has.
    if (unknown_ && marker.has_step_end()) {
      Ask(marker.step_end().step(), {.place = place, .complete = true, .has_records = false});
    }
    return;
  }
  switch (marker.kind_case()) {
    case v1::Marker::kStepEnd:
      if (open_step == marker.step_end().step()) Ask(*open_step, {.place = place, .complete = true});
      break;
    case v1::Marker::kSessionEnd:
      if (marker.session_end().clean()) Ask(*open_step, {.place = place, .complete = true});
      break;
    case v1::Marker::kExportOpenStep:
      if (open_step == marker.export_open_step().step()) Ask(*open_step, {.place = place});
      break;
    default:
      break;
  }
}

void AwaitedExports::Ask(uint32_t step, const Asked& asked) {
  if (server_exports_ == false) return;
  lost_.erase(step);
  const auto [it, added] = asked_.try_emplace(step, asked);
  if (!added && asked.complete) it->second = asked;
}

void AwaitedExports::Exported(const v1::StepExported& exported) {
  const auto it = asked_.find(exported.step());
  if (it == asked_.end()) return;  // reported twice
  if (!exported.error().empty()) {
    log_->Error(Cat("msprobe: step ", exported.step(), " could not be exported: ", exported.error()));
  } else if (exported.path().ends_with(".csv")) {  // of task grad_probe
    std::string directory = exported.path().substr(0, exported.path().rfind('/'));
    if (directory != told_directory_) {
      log_->Info(Cat("gradients are in ", directory, ". "));
      told_directory_ = std::move(directory);
    }
  } else if (!exported.path().empty()) {
    log_->Info(Cat("dump.json is at ", exported.path(), ". "));
  }
  if (!exported.incomplete() || !it->second.complete) asked_.erase(it);
}

std::optional<uint32_t> AwaitedExports::Held(const v1::Batch& batch, std::optional<uint32_t> open_step) {
  for (const v1::Item& item : batch.items()) {
    if (item.has_block()) open_step = item.block().step();
    if (!item.has_marker()) continue;
    Packed(item.marker(), open_step, {.entry = 0, .batch = batch.batch_sequence()});
    if (item.marker().has_step_end() || item.marker().has_step_discarded()) open_step.reset();
  }
  return open_step;
}

std::vector<uint32_t> AwaitedExports::ServerLost(uint64_t durable_through, uint64_t freed_through) {
  std::vector<uint32_t> steps;
  for (auto it = asked_.begin(); it != asked_.end();) {
    const auto& [step, asked] = *it;
    if (asked.place.batch <= durable_through || asked.place.batch > freed_through) {
      ++it;
      continue;
    }
    if (server_exports_ == true) {
      steps.push_back(step);
      lost_[step] = asked.place.entry;
    }
    it = asked_.erase(it);
  }
  return steps;
}

void AwaitedExports::Welcomed(bool server_exports, const std::vector<uint32_t>& unexported, uint64_t durable_through) {
  server_exports_ = server_exports;
  unknown_ = false;
  if (!server_exports) asked_.clear();  // a run of a million steps would list them all in its next Hello
  for (uint32_t step : unexported) {
    Ask(step, {.place = {.entry = 0, .batch = durable_through}});
    if (const auto it = asked_.find(step); it != asked_.end()) it->second.has_records = true;
  }
  std::erase_if(asked_, [](const auto& asked) { return !asked.second.has_records; });
}

void AwaitedExports::AddTo(v1::Hello* hello) const {
  hello->clear_awaited_exports();
  for (const auto& [step, asked] : asked_) {
    if (asked.complete) hello->add_awaited_exports(step);
  }
}

std::vector<uint32_t> AwaitedExports::Missing(uint64_t entry) const {
  std::vector<uint32_t> steps;
  if (server_exports_ != true) return steps;
  for (const auto& [step, asked] : asked_) {
    if (asked.place.entry <= entry) steps.push_back(step);
  }
  return steps;
}

std::vector<uint32_t> AwaitedExports::Lost(uint64_t entry) const {
  std::vector<uint32_t> steps;
  for (const auto& [step, asked_at] : lost_) {
    if (asked_at <= entry) steps.push_back(step);
  }
  return steps;
}

void AwaitedExports::ForgetLost(uint64_t entry) {
  std::erase_if(lost_, [&](const auto& lost) { return lost.second <= entry; });
}

}  // namespace msprobe::core
