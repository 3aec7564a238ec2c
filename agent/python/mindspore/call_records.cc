#include "agent/python/mindspore/call_records.h"

#include <span>
#include <string_view>
#include <utility>

#include "agent/python/thread_slot.h"
#include "agent/python/value_walker.h"

namespace msprobe::capture {
namespace {

std::span<PyObject* const> ItemsOf(PyObject* tuple) {
  return {reinterpret_cast<PyTupleObject*>(tuple)->ob_item, static_cast<size_t>(PyTuple_GET_SIZE(tuple))};
}

// Whether msprobe-client knows what is right for a call: those of other functions would use up a step's budget.
bool IsChecked(std::string_view name) {
  const std::string_view prefix = name.substr(0, name.find('.'));
  return prefix == "Mint" || prefix == "MintFunctional" || prefix == "Tensor" ||
         name == "Functional.flash_attention_score";
}

// Nothing that reading does is recorded.
class Reading {
 public:
  explicit Reading(ThreadState& thread) : thread_(thread) { ++thread_.suppressed; }
  ~Reading() { --thread_.suppressed; }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  ThreadState& thread_;
};

}  // namespace

CallRecords::CallRecords(std::shared_ptr<Recorder> recorder, std::string own_directory, MindsporeValues values,
                         ObjectReference thread_slot)
    : recorder_(std::move(recorder)),
      thread_slot_(std::move(thread_slot)),
      values_(std::move(values)),
      fields_(recorder_, values_, std::move(own_directory)) {}

bool CallRecords::Wants() const {
  if (!recorder_->step().capturing()) return false;
  const ThreadState& thread = ThreadState::Get();
  return thread.api_depth == 0 && thread.suppressed == 0;
}

std::shared_ptr<CallRecords::Call> CallRecords::NewCall(OpenRecord record, const Api* api, const ThreadState& thread) {
  auto call = std::make_shared<Call>();
  call->records_ = shared_from_this();
  call->record_ = std::move(record);
  call->api_ = api;
  call->step_ = recorder_->step().id();
  if (call->record_.parent != 0 && !thread.modules.empty()) {
    const auto* enclosing = static_cast<const Call*>(thread.modules.back().call.get());
    if (enclosing != nullptr) call->backward_parent_ = enclosing->backward_self_;
  }
  return call;
}

bool CallRecords::Takes(Call& call, PyObject* arguments, PyObject* keywords, bool with_gradients) {
  OpenRecord& record = call.record_;
  if (!record.wanted || !IsChecked(call.api_->name)) return false;
  record.wanted = false;
  recorder_->faults().Contain(record, [&] {
    call.sight_ = values_.SightOf(*call.api_, ItemsOf(arguments), keywords, with_gradients);
    call.sight_.identity = CallSampler::IdentityOf(*record.name, {record.step, record.token, record.count});
    record.wanted = recorder_->sampler()->Takes(call.sight_);
  });
  return record.wanted;
}

std::shared_ptr<CallRecords::Call> CallRecords::BeginApi(const Api& api, PyObject* arguments, PyObject* keywords,
                                                         bool with_gradients) {
  ThreadState& thread = ThreadInStep(*recorder_, thread_slot_.get());
  std::shared_ptr<Call> call = NewCall(recorder_->opener().BeginApi(api, thread), &api, thread);
  ++thread.api_depth;
  const Reading reading(thread);
  const CallSampler::Cost cost(recorder_->sampler());
  if (recorder_->sampler() != nullptr && !Takes(*call, arguments, keywords, with_gradients)) {
    call->left_out_ = true;
    return call;
  }
  call->record_.touched = touches_calls_ && call->record_.selected;
  fields_.Enter(call->record_, ItemsOf(arguments), keywords, &api, nullptr);
  return call;
}

std::shared_ptr<CallRecords::Call> CallRecords::BeginCell(const std::shared_ptr<const std::string>& name,
                                                          PyObject* arguments, PyObject* keywords) {
  ThreadState& thread = ThreadState::Get();
  if (!recorder_->step().capturing() || thread.suppressed > 0) return nullptr;
  ThreadInStep(*recorder_, thread_slot_.get());
  std::shared_ptr<Call> call = NewCall(recorder_->opener().BeginModule(name, thread), nullptr, thread);
  OpenRecord backward = call->record_;
  backward.direction = core::Direction::kBackward;
  call->backward_self_ = recorder_->session().DefineParent(backward.FullName());
  call->left_out_ = recorder_->sampler() != nullptr;  // it names its calls, and is no record
  if (!call->left_out_) {
    const Reading reading(thread);
    fields_.Enter(call->record_, ItemsOf(arguments), keywords, nullptr, nullptr);
  }
  recorder_->opener().PushModule(thread, call, call->record_);
  return call;
}

void CallRecords::Call::End(PyObject* result, PyObject* parameters) {
  ThreadState& thread = ThreadState::Get();
  if (!left_out_) {
    const Reading reading(thread);
    CallSampler* const sampler = records_->recorder_->sampler();
    const CallSampler::Cost cost(sampler);
    if (sampler != nullptr) {
      records_->recorder_->faults().Contain(record_,
                                            [&] { sampler->Learn(sight_, records_->values_.BytesOf(result)); });
    }
    records_->fields_.Exit(record_, api_, {}, nullptr, result, parameters, nullptr);
  }
  Leave(thread);
}

void CallRecords::Call::Raised() {
  ThreadState& thread = ThreadState::Get();
  if (!left_out_) records_->fields_.Raised(record_);
  Leave(thread);
}

void CallRecords::Call::Leave(ThreadState& thread) {
  if (is_cell()) {
    records_->recorder_->opener().PopModule(thread, record_);
  } else {
    --thread.api_depth;
  }
}

void CallRecords::Call::BeginBackward(PyObject* gradients) {
  Recorder& recorder = *records_->recorder_;
  if (step_ != recorder.step().id()) return;
  if (record_.passes == nullptr) record_.passes = std::make_shared<PassCount>();
  backward_ = recorder.opener().BeginBackward(record_, ThreadState::Get());
  backward_.parent = backward_parent_;
  EmitGradients(Side::kArriving, gradients);
}

void CallRecords::Call::EndBackward(PyObject* gradients) {
  if (step_ != records_->recorder_->step().id()) return;
  EmitGradients(Side::kLeaving, gradients);
  if (is_cell()) records_->recorder_->opener().PopModule(ThreadState::Get(), backward_);
}

void CallRecords::Call::EmitGradients(Side side, PyObject* gradients) {
  Recorder& recorder = *records_->recorder_;
  const CallSampler::Cost cost(recorder.sampler());
  recorder.faults().Contain(backward_, [&] {
    if (!backward_.wanted) {
      if (side == Side::kArriving) recorder.emitter().EmitConstructOnly(backward_);
      return;
    }
    ThreadState& thread = ThreadState::Get();
    const Reading reading(thread);
    FragmentBuilder& builder = thread.builder;
    FragmentEmitter::Start(backward_, builder);
    const bool arriving = side == Side::kArriving;
    const CaptureRules& rules = recorder.rules();
    if (arriving ? rules.WantsInput(core::Direction::kBackward) : rules.WantsOutput(core::Direction::kBackward)) {
      ValueWalker walker(recorder, builder, records_->values_, backward_.save);
      builder.Key(arriving ? "input" : "output");
      walker.WalkArguments(ItemsOf(gradients), {});
    }
    recorder.emitter().Emit(backward_, builder, arriving ? core::kEnter : core::kExit);
  });
}

void CallRecords::ParameterGradient(const std::shared_ptr<const std::string>& cell, const std::string& parameter,
                                    PyObject* gradient) {
  ThreadState& thread = ThreadState::Get();
  OpenRecord record = recorder_->opener().BeginParameterGradient(cell, parameter, thread);
  if (!record.wanted) return;
  recorder_->faults().Contain(record, [&] {
    const Reading reading(thread);
    FragmentBuilder& builder = thread.builder;
    FragmentEmitter::Start(record, builder);
    ValueWalker walker(*recorder_, builder, values_, record.save);
    builder.Key(parameter);
    builder.BeginList();
    walker.Walk(gradient);
    builder.End();
    recorder_->emitter().Emit(record, builder, core::kEnter | core::kExit | core::kUpdate);
  });
}

ObjectReference CallRecords::Read(PyObject* tensor, bool save) {
  const Reading suppressed(ThreadState::Get());
  auto reading = std::make_unique<TensorReading>(ReadMindsporeTensor(*recorder_, tensor, save));
  return ObjectReference::Steal(PyCapsule_New(reading.release(), kReadingName, [](PyObject* capsule) {
    delete static_cast<TensorReading*>(PyCapsule_GetPointer(capsule, kReadingName));
  }));
}

ObjectReference CallRecords::Call::ReadGradient(PyObject* gradient) {
  const Recorder& recorder = *records_->recorder_;
  if (step_ != records_->recorder_->step().id() || !recorder.rules().WantsDirection(core::Direction::kBackward) ||
      !records_->values_.IsTensor(gradient)) {
    return ObjectReference::Borrow(Py_None);
  }
  const CallSampler::Cost cost(records_->recorder_->sampler());
  OpenRecord backward = record_;
  backward.direction = core::Direction::kBackward;
  return records_->Read(gradient, recorder.rules().Saves(backward));
}

}  // namespace msprobe::capture
