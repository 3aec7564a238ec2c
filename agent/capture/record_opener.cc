#include "agent/capture/record_opener.h"

#include <utility>

namespace msprobe::capture {

RecordOpener::RecordOpener(const core::Config& config, core::Session* session, TensorSource* source,
                           const CaptureRules* rules, const StepState* step)
    : level_(config.level),
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
  record.in_construct = level_ == core::Level::kMix;
  {
    absl::MutexLock lock(&mu_);
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
  record.in_construct = level_ != core::Level::kL1;
  {
    absl::MutexLock lock(&mu_);
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

void RecordOpener::Recheck(OpenRecord& record) {
  {
    absl::MutexLock lock(&mu_);
    if (!filter_.changes()) return;
    filter_.Judge(record);
  }
  DecideSave(record);
}

void RecordOpener::PushModule(ThreadState& thread, std::shared_ptr<void> call, OpenRecord& record) {
  parents_.Push(thread, std::move(call), record);
}

void RecordOpener::PopModule(ThreadState& thread, const OpenRecord& record) {
  parents_.Pop(thread, record);
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
