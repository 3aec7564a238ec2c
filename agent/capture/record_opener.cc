#include "agent/capture/record_opener.h"

#include <utility>

namespace msprobe::capture {

RecordOpener::RecordOpener(const core::Config& config, core::Session* session, TensorSource* source,
                           const CaptureRules* rules, const StepState* step)
    : level_(config.level),
      selects_(!config.select.empty()),
      reads_around_(CallSelection(config).reads_around()),
      saves_debug_(config.task == core::Task::kTensor),
      source_(*source),
      rules_(*rules),
      step_(*step),
      parents_(session),
      filter_(config, rules) {}

OpenRecord RecordOpener::BeginApi(const Api& api, ThreadState& thread) {
  OpenRecord record;
  record.kind = core::RecordKind::kApi;
  record.risk = api.risk;
  record.step = step_.number();
  record.thread = thread.number;
  record.recompute = source_.BeginCall(record.kind);
  record.parent = parents_.Of(record.kind, thread);
  {
    absl::MutexLock lock(&mu_);
    record.in_select = filter_.selection().TakesApi(api, Around(thread));
    record.in_construct = level_ == core::Level::kMix && record.in_select;
    std::shared_ptr<const std::string>& name = api_names_[&api];
    if (name == nullptr) name = std::make_shared<const std::string>(api.name);
    record.name = name;
    record.count = numbers_.NextCount(api.name, record.recompute ? 0 : thread.slot);
    record.token = step_.token();
    record.begun = record.ordinal = numbers_.NextOrdinal();
    filter_.Judge(record);
  }
  DecideSave(record);
  return record;
}

OpenRecord RecordOpener::BeginModule(const std::shared_ptr<const std::string>& name, ThreadState& thread) {
  OpenRecord record;
  record.kind = core::RecordKind::kModule;
  record.step = step_.number();
  record.thread = thread.number;
  record.recompute = source_.BeginCall(record.kind);
  record.name = name;
  record.parent = parents_.Of(record.kind, thread);
  {
    absl::MutexLock lock(&mu_);
    record.in_select = filter_.selection().TakesModule(*name);
    record.in_construct = level_ != core::Level::kL1 && record.in_select;
    record.count = numbers_.NextCount(*name, record.recompute ? 0 : thread.slot);
    record.token = step_.token();
    record.begun = record.ordinal = numbers_.NextOrdinal();
    filter_.BeginModule(record);
    filter_.Judge(record);
  }
  DecideSave(record);
  return record;
}

OpenRecord RecordOpener::BeginBackward(const OpenRecord& forward, ThreadState& thread) {
  OpenRecord record = forward;
  record.direction = core::Direction::kBackward;
  record.recompute = false;
  record.step = step_.number();
  if (record.passes != nullptr) record.pass = record.passes->Next(record.step);
  record.thread = thread.number;
  record.entered = false;
  record.parent = parents_.Of(record.kind, thread);
  {
    absl::MutexLock lock(&mu_);
    record.begun = record.ordinal = numbers_.NextOrdinal();
    if (record.kind == core::RecordKind::kModule) filter_.BeginModule(record);
    filter_.Judge(record);
  }
  DecideSave(record);
  return record;
}

OpenRecord RecordOpener::BackwardOf(const OpenRecord& forward) {
  OpenRecord record = forward;
  record.direction = core::Direction::kBackward;
  record.recompute = false;
  if (record.passes != nullptr) record.pass = record.passes->Latest(record.step);
  record.entered = true;
  {
    absl::MutexLock lock(&mu_);
    filter_.Judge(record);
  }
  DecideSave(record);
  return record;
}

OpenRecord RecordOpener::BeginParameterGradient(const std::shared_ptr<const std::string>& module,
                                                const std::string& parameter, ThreadState& thread) {
  OpenRecord record;
  record.kind = core::RecordKind::kParametersGrad;
  record.direction = core::Direction::kBackward;
  record.step = step_.number();
  record.thread = thread.number;
  record.name = module;
  {
    absl::MutexLock lock(&mu_);
    const StepNumbers::Gradient gradient = numbers_.NextGradient(*module, parameter, step_.latest_token());
    record.count = gradient.count;
    record.token = gradient.token;
    record.begun = record.ordinal = numbers_.NextOrdinal();
    record.wanted = filter_.KeepsGradients(*module);
  }
  DecideSave(record);
  return record;
}

OpenRecord RecordOpener::BeginDebug(std::string_view name, uint32_t count) {
  OpenRecord record;
  record.kind = core::RecordKind::kDebug;
  record.step = step_.number();
  record.thread = ThreadState::Get().number;
  record.name = std::make_shared<const std::string>(name);
  record.count = count;
  record.wanted = true;
  record.save = saves_debug_;
  absl::MutexLock lock(&mu_);
  record.ordinal = numbers_.DebugOrdinal(record.FullName());
  return record;
}

const std::shared_ptr<const std::string>& RecordOpener::Around(const ThreadState& thread) const {
  static const std::shared_ptr<const std::string> kNone;
  return reads_around_ && !thread.around.empty() ? thread.around.back() : kNone;
}

bool RecordOpener::LeavesOut(const Api& api, ThreadState& thread) {
  if (!selects_) return false;
  const bool recompute = source_.BeginCall(core::RecordKind::kApi);
  absl::MutexLock lock(&mu_);
  if (filter_.selection().TakesApi(api, Around(thread))) return false;
  numbers_.NextCount(api.name, recompute ? 0 : thread.slot);
  return true;
}

bool RecordOpener::LeavesOut(const std::string& module) {
  if (!selects_) return false;
  absl::MutexLock lock(&mu_);
  return !filter_.selection().TakesModule(module);
}

void RecordOpener::BeginInside(const std::shared_ptr<const std::string>& module, ThreadState& thread) {
  if (reads_around_) thread.around.push_back(module);
}

void RecordOpener::EndInside(ThreadState& thread) {
  if (reads_around_ && !thread.around.empty()) thread.around.pop_back();
}

void RecordOpener::Recheck(OpenRecord& record) {
  if (step_.forked()) {
    record.wanted = record.save = false;
    return;
  }
  {
    absl::MutexLock lock(&mu_);
    if (!filter_.changes()) return;
    filter_.Judge(record);
  }
  DecideSave(record);
}

void RecordOpener::PushModule(ThreadState& thread, std::shared_ptr<void> call, OpenRecord& record) {
  if (record.direction == core::Direction::kForward) BeginInside(record.name, thread);
  if (record.in_select) parents_.Push(thread, std::move(call), record);
}

void RecordOpener::PopModule(ThreadState& thread, const OpenRecord& record) {
  if (record.direction == core::Direction::kForward) EndInside(thread);
  if (record.in_select) parents_.Pop(thread, record);
  if (step_.forked()) return;
  absl::MutexLock lock(&mu_);
  filter_.EndModule(record);
}

uint64_t RecordOpener::NextOrdinal() {
  absl::MutexLock lock(&mu_);
  return numbers_.NextOrdinal();
}

bool RecordOpener::EndStep() {
  absl::MutexLock lock(&mu_);
  const bool had_calls = numbers_.has_ordinals();
  filter_.EndStep();
  numbers_.EndStep();
  return had_calls;
}

}  // namespace msprobe::capture
