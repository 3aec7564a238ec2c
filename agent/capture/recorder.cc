#include "agent/capture/recorder.h"

#include <algorithm>

#include "agent/core/str_cat.h"

namespace msprobe::capture {
namespace {

uint32_t NextGeneration() {
  static std::atomic<uint32_t> next{1};
  return next.fetch_add(1);
}

// The forward pass that a thread has begun. Several threads may run one each (microbatches); each records into its own.
struct ThreadPass {
  uint32_t epoch = 0;  // the lanes_epoch() of its step
  uint32_t token = 0;
};
thread_local ThreadPass thread_pass;

uint32_t TokenOfThread(uint32_t epoch, uint32_t latest) {
  return thread_pass.epoch == epoch ? thread_pass.token : latest;
}

bool AtLeast(core::RiskLevel risk, core::RiskLevel asked) {
  switch (asked) {
    case core::RiskLevel::kAll:
      return true;
    case core::RiskLevel::kFocus:
      return risk != core::RiskLevel::kAll;  // of an API, kAll means: only shown when all are
    case core::RiskLevel::kCore:
      return risk == core::RiskLevel::kCore;
  }
  return true;
}

}  // namespace

Recorder::Recorder(core::Config config, std::shared_ptr<core::Session> session, std::unique_ptr<TensorSource> source)
    : config_(std::move(config)),
      session_(std::move(session)),
      memory_(config_, session_.get()),
      source_(std::move(source)),
      diff_check_(config_.bench_path.empty() ? nullptr : std::make_unique<DiffCheck>(config_.diff_nums)),
      structures_(session_.get()),
      generation_(NextGeneration()),
      lanes_epoch_(NextGeneration()),
      filter_(config_) {}

void Recorder::Start(uint32_t step, std::optional<TokenWindow::Range> tokens) {
  step_.store(step, std::memory_order_relaxed);
  {
    absl::MutexLock lock(&mu_);
    window_.Open(tokens);
    inside_.store(window_.inside(), std::memory_order_relaxed);
  }
  watching_.store(true, std::memory_order_release);
}

void Recorder::GoOn(uint32_t step) {
  step_.store(step, std::memory_order_relaxed);
  watching_.store(true, std::memory_order_release);
}

void Recorder::Stop() {
  watching_.store(false, std::memory_order_release);
  source_->Flush();
}

Recorder::StepContents Recorder::EndStep(uint32_t step, bool keep) {
  source_->Flush();
  if (keep) {
    session_->EndStep(step);
  } else {
    session_->DiscardStep(step);
  }
  step_.store(step + 1, std::memory_order_relaxed);
  if (diff_check_ != nullptr) diff_check_->EndStep();
  source_->EndStep();
  absl::MutexLock lock(&mu_);
  const StepContents contents{token_seen_, numbers_.has_ordinals(), has_records_.exchange(false)};
  filter_.Reset();
  numbers_.EndStep();
  token_ = 0;
  token_seen_ = false;
  lanes_epoch_.store(NextGeneration(), std::memory_order_relaxed);
  modules_with_backward_.clear();
  return contents;
}

bool Recorder::WantsDirection(core::Direction direction) const {
  return direction == core::Direction::kForward ? config_.forward : config_.backward;
}

bool Recorder::WantsInput(core::Direction direction) const {
  return config_.task != core::Task::kStructure && config_.input && WantsDirection(direction);
}

bool Recorder::WantsOutput(core::Direction direction) const {
  return config_.task != core::Task::kStructure && config_.output && WantsDirection(direction);
}

uint32_t Recorder::BeginToken() {
  absl::MutexLock lock(&mu_);
  if (token_seen_) ++token_;
  token_seen_ = true;
  window_.BeginPass();
  inside_.store(window_.inside(), std::memory_order_relaxed);
  thread_pass = {.epoch = lanes_epoch(), .token = token_};
  return token_;
}

core::ParentId Recorder::ParentOf(const ThreadState& thread) const {
  if (thread.generation != generation_ || thread.modules.empty()) return 0;
  return thread.modules.back().name;
}

void Recorder::Judge(OpenRecord& record, bool apply_risk, core::RiskLevel risk) {
  if (filter_.active()) {
    record.selected = filter_.Check(record.FullName());
  } else {
    const bool has_apis = config_.level == core::Level::kL1 || config_.level == core::Level::kMix;
    record.selected = !apply_risk || !has_apis || AtLeast(risk, config_.risk_level);
  }
  record.wanted = record.selected && WantsDirection(record.direction);
}

bool Recorder::Saves(const OpenRecord& record) const {
  if (diff_check_ != nullptr) return diff_check_->comparing();
  if (config_.task == core::Task::kTensor) return true;
  if (config_.tensor_list.empty() || config_.level == core::Level::kDebug) return false;
  const std::string full_name = record.FullName();
  return std::any_of(config_.tensor_list.begin(), config_.tensor_list.end(),
                     [&](const std::string& part) { return full_name.find(part) != std::string::npos; });
}

uint32_t Recorder::NextCount(const std::string& name, const ThreadState& thread, bool recompute) {
  // A second forward counts on where the first one was, whichever thread runs the backward pass.
  return numbers_.NextCount(name, recompute ? 0 : thread.lane);
}

OpenRecord Recorder::BeginApi(const Api& api, ThreadState& thread) {
  OpenRecord record;
  record.kind = core::RecordKind::kApi;
  record.step = step();
  record.thread = thread.number;
  record.recompute = source_->BeginCall(record.kind);
  {
    absl::MutexLock lock(&mu_);
    std::shared_ptr<const std::string>& name = api_names_[&api];
    if (name == nullptr) name = std::make_shared<const std::string>(api.name);
    record.name = name;
    record.count = NextCount(api.name, thread, record.recompute);
    record.token = TokenOfThread(lanes_epoch(), token_);
    record.ordinal = numbers_.NextOrdinal();
    record.parent = phase_ != 0 ? phase_ : ParentOf(thread);
    record.in_construct = config_.level == core::Level::kMix;
    Judge(record, true, api.risk);
  }
  record.save = record.wanted && Saves(record);
  return record;
}

OpenRecord Recorder::BeginModule(const std::shared_ptr<const std::string>& name, ThreadState& thread) {
  OpenRecord record;
  record.kind = core::RecordKind::kModule;
  record.step = step();
  record.thread = thread.number;
  record.recompute = source_->BeginCall(record.kind);
  record.name = name;
  {
    absl::MutexLock lock(&mu_);
    record.count = NextCount(*name, thread, record.recompute);
    record.token = TokenOfThread(lanes_epoch(), token_);
    record.ordinal = numbers_.NextOrdinal();
    record.parent = ParentOf(thread);
    record.in_construct = config_.level != core::Level::kL1;
    if (filter_.active()) filter_.BeginModule(record.FullName());
    Judge(record, false, core::RiskLevel::kAll);
  }
  record.save = record.wanted && Saves(record);
  return record;
}

OpenRecord Recorder::BeginBackward(const OpenRecord& forward, bool apply_risk, core::RiskLevel risk,
                                   ThreadState& thread) {
  OpenRecord record = forward;
  record.direction = core::Direction::kBackward;
  record.recompute = false;
  record.step = step();
  if (record.passes != nullptr) record.pass = record.passes->Next(record.step);
  record.thread = thread.number;
  record.entered = false;
  {
    absl::MutexLock lock(&mu_);
    record.ordinal = numbers_.NextOrdinal();
    record.parent = record.kind == core::RecordKind::kApi && phase_ != 0 ? phase_ : ParentOf(thread);
    if (record.kind == core::RecordKind::kModule && filter_.active()) filter_.BeginModule(record.FullName());
    Judge(record, apply_risk, risk);
    if (record.wanted && record.kind == core::RecordKind::kModule && filter_.active()) {
      modules_with_backward_.insert(*record.name);
    }
  }
  record.save = record.wanted && Saves(record);
  return record;
}

OpenRecord Recorder::BackwardOf(const OpenRecord& forward, bool apply_risk, core::RiskLevel risk) {
  OpenRecord record = forward;
  record.direction = core::Direction::kBackward;
  record.recompute = false;
  if (record.passes != nullptr) record.pass = record.passes->Latest(record.step);
  record.entered = true;
  {
    absl::MutexLock lock(&mu_);
    Judge(record, apply_risk, risk);
  }
  record.save = record.wanted && Saves(record);
  return record;
}

OpenRecord Recorder::BeginParameterGradient(const std::shared_ptr<const std::string>& module,
                                            const std::string& parameter, ThreadState& thread) {
  OpenRecord record;
  record.kind = core::RecordKind::kParametersGrad;
  record.direction = core::Direction::kBackward;
  record.step = step();
  record.thread = thread.number;
  record.name = module;
  {
    absl::MutexLock lock(&mu_);
    const StepNumbers::Gradient gradient = numbers_.NextGradient(*module, parameter, token_);
    record.count = gradient.count;
    record.token = gradient.token;
    record.ordinal = numbers_.NextOrdinal();
    record.wanted = !filter_.active() || modules_with_backward_.contains(*module) || filter_.Check(*module);
  }
  record.save = record.wanted && Saves(record);
  return record;
}

OpenRecord Recorder::BeginDebug(std::string_view name, uint32_t count) {
  OpenRecord record;
  record.kind = core::RecordKind::kDebug;
  record.step = step();
  record.thread = ThreadState::Get().number;
  record.name = std::make_shared<const std::string>(name);
  record.count = count;
  record.wanted = true;
  record.save = config_.task == core::Task::kTensor;
  absl::MutexLock lock(&mu_);
  record.ordinal = numbers_.DebugOrdinal(record.FullName());
  return record;
}

void Recorder::Recheck(OpenRecord& record, bool apply_risk, core::RiskLevel risk) {
  {
    absl::MutexLock lock(&mu_);
    if (!filter_.active()) return;
    Judge(record, apply_risk, risk);
  }
  record.save = record.wanted && Saves(record);
}

void Recorder::PushModule(ThreadState& thread, std::shared_ptr<void> call, OpenRecord& record) {
  if (thread.generation != generation_) {
    thread.modules.clear();
    thread.generation = generation_;
  }
  thread.text.clear();
  record.AppendFullName(&thread.text);
  record.self = session_->DefineParent(thread.text);
  thread.modules.push_back({std::move(call), record.self});
}

void Recorder::PopModule(ThreadState& thread, const OpenRecord& record) {
  if (thread.generation == generation_) {
    const auto innermost = std::find_if(thread.modules.rbegin(), thread.modules.rend(),
                                        [&](const ThreadState::OpenModule& open) { return open.name == record.self; });
    if (innermost != thread.modules.rend()) thread.modules.erase(std::next(innermost).base());
  }
  absl::MutexLock lock(&mu_);
  if (filter_.active()) filter_.EndModule(record.FullName());
}

void Recorder::SetPhase(std::string_view phase) {
  const core::ParentId name = phase.empty() ? 0 : session_->DefineParent(phase);
  absl::MutexLock lock(&mu_);
  phase_ = name;
}

void Recorder::StartFragment(const OpenRecord& record, FragmentBuilder& builder) {
  builder.Start(*record.name, record.kind, record.direction, record.pass);
}

void Recorder::Emit(OpenRecord& record, FragmentBuilder& builder, uint32_t flags, core::StackId stack) {
  if (record.step != step()) return;  // its step has ended while the call was under way
  // Modules and parameters stand where they were updated last. So does an API whose first fields come late.
  const bool ends = (flags & core::kExit) != 0 && !builder.empty();
  const bool whole = (flags & core::kEnter) != 0;  // its begin was not wanted: a scope opened since
  const bool moves = ends && (whole ? record.kind == core::RecordKind::kModule
                                    : record.kind != core::RecordKind::kApi || !record.entered);
  if (moves) {
    absl::MutexLock lock(&mu_);
    record.ordinal = numbers_.NextOrdinal();
    if (!whole) flags |= core::kUpdate;
  }
  if ((flags & core::kEnter) != 0 && !builder.empty()) record.entered = true;
  if ((flags & core::kConstructOnly) == 0 && !has_records_.load(std::memory_order_relaxed)) has_records_.store(true);
  if (diff_check_ != nullptr && record.save) CompareBeforeEmit(record, builder, flags);
  EmitFragment(record, builder, flags, stack);
}

void Recorder::CompareBeforeEmit(OpenRecord& record, FragmentBuilder& builder, uint32_t flags) {
  DiffCheck::Verdict verdict =
      diff_check_->Check(record.FullName(), (flags & core::kEnter) != 0, (flags & core::kExit) != 0, builder);
  if (!verdict.differs) return;
  log_.Warning(core::Cat("step ", record.step, ": ", verdict.message));
  if (verdict.held != nullptr) EmitFragment(record, *verdict.held, core::kEnter, 0);
}

void Recorder::EmitFragment(const OpenRecord& record, FragmentBuilder& builder, uint32_t flags, core::StackId stack) {
  if (!record.in_construct) flags |= core::kNoConstruct;
  if (record.recompute) flags |= core::kRecompute;
  if (record.touched) flags |= core::kTouched;
  core::Fragment fragment;
  fragment.step = record.step;
  fragment.token = record.token;
  fragment.structure = structures_.Of(builder);
  fragment.count = record.count;
  fragment.ordinal = record.ordinal;
  fragment.flags = flags;
  fragment.stack = stack;
  fragment.parent = record.parent;
  fragment.thread = record.thread;
  builder.Fill(fragment);
  session_->Emit(fragment);
}

void Recorder::EmitConstructOnly(const OpenRecord& record, core::StackId stack) {
  if (!record.in_construct && stack == 0) return;
  OpenRecord silent = record;
  FragmentBuilder builder;
  StartFragment(silent, builder);
  Emit(silent, builder, core::kEnter | core::kExit | core::kConstructOnly, stack);
}

void Recorder::Fault(const OpenRecord& where, std::string_view message) noexcept {
  try {
    session_->ReportFault(where.step, where.name == nullptr ? "" : where.FullName(), message);
  } catch (...) {
    lost_faults_.fetch_add(1);  // nothing more can be done for it
  }
}

}  // namespace msprobe::capture
