#include "agent/python/capture.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/python_variable.h>

#include "agent/core/pool.h"
#include "agent/python/thread_slot.h"
#include "agent/python/torch_values.h"
#include "agent/python/untraced.h"
#include "agent/python/value_walker.h"
#include "agent/torch/autograd/exact_backward.h"
#include "agent/torch/autograd/weight_gradient.h"
#include "agent/torch/tensor/model_positions.h"
#include "agent/torch/torch_source.h"

namespace msprobe::capture {
namespace {

// p = 0 of a dropout: torch gives the input back and there is no gradient of its own.
bool DropsNothing(std::span<PyObject* const> arguments, PyObject* keywords) {
  PyObject* p = arguments.size() >= 2 ? arguments[1] : nullptr;
  if (p == nullptr && keywords != nullptr) p = PyDict_GetItemString(keywords, "p");
  if (p == nullptr) return false;
  const double value = PyFloat_AsDouble(p);
  PyErr_Clear();
  return value == 0;
}

// The dict of a module's own parameters, or nothing. The name is an interned string: looking another one up fills no
// cache of the interpreter's, and searches every class of the module each time.
ObjectReference ParametersOf(PyObject* module) {
  static PyObject* const name = PyUnicode_InternFromString("_parameters");
  ObjectReference parameters = ObjectReference::Steal(PyObject_GetAttr(module, name));
  if (parameters && PyDict_Check(parameters.get())) return parameters;
  PyErr_Clear();
  return {};
}

std::span<PyObject* const> ItemsOf(PyObject* tuple) {
  return {reinterpret_cast<PyTupleObject*>(tuple)->ob_item, static_cast<size_t>(PyTuple_GET_SIZE(tuple))};
}

// A tuple of the items, behind `first` if there is one. Empty with an error set: there is no memory.
ObjectReference TupleOf(std::span<PyObject* const> items, PyObject* first = nullptr) {
  const Py_ssize_t before = first == nullptr ? 0 : 1;
  ObjectReference tuple = ObjectReference::Steal(PyTuple_New(before + static_cast<Py_ssize_t>(items.size())));
  if (!tuple) return tuple;
  if (first != nullptr) PyTuple_SET_ITEM(tuple.get(), 0, ObjectReference::Borrow(first).release());
  for (size_t i = 0; i < items.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), before + static_cast<Py_ssize_t>(i), ObjectReference::Borrow(items[i]).release());
  }
  return tuple;
}

class Depth {
 public:
  explicit Depth(int& depth) : depth_(depth) { ++depth_; }
  ~Depth() { --depth_; }

 private:
  int& depth_;
};

}  // namespace

Capture::Capture(std::shared_ptr<Recorder> recorder, std::string own_directory, Callbacks callbacks)
    : recorder_(std::move(recorder)),
      callbacks_(std::move(callbacks)),
      values_(callbacks_.describe, callbacks_.communication),
      fields_(recorder_, values_, std::move(own_directory)),
      parameter_gradients_(recorder_) {}

bool Capture::Wants() {
  if (active_ == nullptr || !active_->recorder_->step().capturing()) return false;
  const ThreadState& thread = ThreadState::Get();
  if (thread.api_depth > 0 || thread.suppressed > 0) return false;
  using c10::impl::TorchDispatchModeKey;
  using c10::impl::TorchDispatchModeTLS;
  return !TorchDispatchModeTLS::any_modes_set() || (!TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::FAKE) &&
                                                    !TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::PROXY) &&
                                                    !TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::FUNCTIONAL));
}

ThreadState& Capture::Thread() {
  ThreadState& thread = ThreadState::Get();
  if (thread.slot_step == recorder_->step().id()) return thread;
  const Untraced untraced;
  return ThreadInStep(*recorder_, callbacks_.thread_slot.get());
}

PyObject* Capture::CallApi(const Api& api, std::span<PyObject* const> arguments, PyObject* keywords, PyObject* callable,
                           Original original) {
  const Depth entered(inside_);
  ThreadState& thread = Thread();
  const Depth inside(thread.api_depth);
  if (stages_.empty() && recorder_->opener().LeavesOut(api, thread)) return original();
  // The capture may be replaced while the call runs; the recorder stays until its own records are finished.
  const std::shared_ptr<Recorder> recorder = recorder_;
  OpenRecord record = recorder->opener().BeginApi(api, thread);
  CallSampler::Sight sight;
  if (CallSampler* const sampler = recorder->sampler(); sampler != nullptr && record.wanted) {
    const CallSampler::Cost cost(sampler);  // most calls are looked at and not taken
    record.wanted = false;
    recorder->faults().Contain(record, [&] {
      sight = SightOf(api, arguments, keywords);
      sight.identity = CallSampler::IdentityOf(*record.name, {record.step, record.token, record.count});
      record.wanted = sampler->Takes(sight);
    });
  }
  if (!stages_.Touches(record)) return ObserveApi(recorder, api, record, sight, arguments, keywords, original);
  record.touched = true;
  const ObjectReference given = TupleOf(arguments);
  if (!given) return nullptr;
  return stages_.Run(
      record, given.get(), keywords,
      [&](PyObject* positional, PyObject* named, RestOfCall rest) {
        return ObserveApi(recorder, api, record, sight, ItemsOf(positional), named,
                          [&] { return rest(positional, named); });
      },
      [&](PyObject* positional, PyObject* named) { return PyObject_Call(callable, positional, named); });
}

PyObject* Capture::ObserveApi(const std::shared_ptr<Recorder>& recorder, const Api& api, OpenRecord& record,
                              const CallSampler::Sight& sight, std::span<PyObject* const> arguments, PyObject* keywords,
                              Original original) {
  CallSampler* const sampler = recorder->sampler();
  if (sampler != nullptr && !record.wanted) return original();
  {
    const CallSampler::Cost cost(sampler);
    fields_.Enter(record, arguments, keywords, &api, nullptr);
  }
  const uint64_t first_sequence = at::sequence_number::peek();
  PyObject* result = original();
  if (active_ != this) return result;
  const CallSampler::Cost cost(sampler);
  if (sampler != nullptr && result != nullptr) {
    recorder->faults().Contain(record, [&] { sampler->Learn(sight, BytesOf(result)); });
  }
  if (result == nullptr) {
    fields_.Raised(record);
    return nullptr;
  }
  if (!api.is_dropout || !DropsNothing(arguments, keywords)) {
    recorder->faults().Contain(record,
                               [&] { HookApiBackward(recorder, record, FirstTensor(result), ThreadState::Get()); });
  }
  if (recorder->config().linear_weight_grad && api.name == "Functional.linear") {
    PyObject* weight = arguments.size() > 1  ? arguments[1]
                       : keywords == nullptr ? nullptr
                                             : PyDict_GetItemString(keywords, "weight");
    recorder->faults().Contain(record, [&] {
      if (weight == nullptr || !THPVariable_Check(weight)) return;
      HookWeightGradient(recorder, record, THPVariable_Unpack(weight), FirstTensor(result), first_sequence);
    });
  }
  if (api.is_distributed && CompletesLater(api, record, arguments, keywords, result)) return result;
  fields_.Exit(record, &api, arguments, keywords, result, nullptr, nullptr);
  return result;
}

bool Capture::CompletesLater(const Api& api, const OpenRecord& record, std::span<PyObject* const> arguments,
                             PyObject* keywords, PyObject* result) {
  static PyTypeObject* const work_type = [] {
    const ObjectReference module = ObjectReference::Steal(PyImport_ImportModule("torch._C._distributed_c10d"));
    PyObject* type = module ? PyObject_GetAttrString(module.get(), "Work") : nullptr;
    PyErr_Clear();
    return reinterpret_cast<PyTypeObject*>(type);
  }();
  if (work_type == nullptr) return false;
  std::vector<PyObject*> works;
  if (PyObject_TypeCheck(result, work_type)) works.push_back(result);
  for (Py_ssize_t i = 0; PyList_Check(result) && i < PyList_GET_SIZE(result); ++i) {
    PyObject* item = PyList_GET_ITEM(result, i);
    if (PyObject_TypeCheck(item, work_type)) works.push_back(item);
  }
  if (works.empty()) return false;
  auto wait = std::make_shared<Wait>();
  wait->record = record;
  wait->api = &api;
  for (PyObject* argument : arguments) wait->arguments.push_back(ObjectReference::Borrow(argument));
  if (keywords != nullptr) wait->keywords = ObjectReference::Borrow(keywords);
  wait->result = ObjectReference::Borrow(result);
  for (PyObject* work : works) {
    if (waits_.insert_or_assign(work, wait).second) ++wait->left;
  }
  return wait->left > 0;
}

void Capture::Save(const std::string& name, uint32_t count, PyObject* value) {
  const Depth entered(inside_);
  fields_.Save(name, count, value);
}

void Capture::Waited(PyObject* work) {
  const Depth entered(inside_);
  const auto found = waits_.find(work);
  if (found == waits_.end()) return;
  const std::shared_ptr<Wait> wait = found->second;
  waits_.erase(found);
  if (--wait->left > 0) return;
  std::vector<PyObject*> arguments;
  for (const ObjectReference& argument : wait->arguments) arguments.push_back(argument.get());
  const Depth inside(ThreadState::Get().api_depth);
  const KeptError error;
  fields_.Exit(wait->record, wait->api, arguments, wait->keywords.get(), wait->result.get(), nullptr, nullptr);
}

ObjectReference Capture::Behind(const OpenRecord& record, PyObject* value, Pass pass) {
  const KeptError error;
  ObjectReference passed;
  recorder_->faults().Contain(record, [&] {
    Tensors tensors;
    CollectGradientTensors(value, tensors);
    const std::vector<at::Tensor> behind = pass({tensors.begin(), tensors.end()});
    if (behind.empty()) return;
    const ObjectReference list = ObjectReference::Steal(PyList_New(static_cast<Py_ssize_t>(behind.size())));
    for (size_t i = 0; list && i < behind.size(); ++i) {
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), THPVariable_Wrap(behind[i]));
    }
    const Depth unrecorded(ThreadState::Get().suppressed);
    const Untraced untraced;
    passed =
        ObjectReference::Steal(PyObject_CallFunctionObjArgs(callbacks_.with_tensors.get(), value, list.get(), nullptr));
    if (!passed)
      recorder_->faults().Report(record, "the module's tensors cannot be replaced: its backward is not recorded");
  });
  PyErr_Clear();
  return passed ? std::move(passed) : ObjectReference::Borrow(value);
}

bool Capture::BeginPass(PyObject* keywords) {
  if (std::exchange(root_raised_, false)) {
    const Untraced untraced;
    const ObjectReference done = ObjectReference::Steal(PyObject_CallNoArgs(callbacks_.pass_failed.get()));
    PyErr_Clear();
    if (active_ != this || !recorder_->step().watching()) return false;
  }
  const uint32_t token = recorder_->step().BeginToken();
  if (!serving_ || !recorder_->step().capturing()) return true;
  PyObject* positions = keywords == nullptr ? nullptr : PyDict_GetItemString(keywords, "positions");
  std::optional<Positions> placed;
  if (positions != nullptr && THPVariable_Check(positions)) placed = PositionsOf(THPVariable_Unpack(positions));
  batch_.NotePass(recorder_->session(), recorder_->step().number(), token, placed.has_value() ? &*placed : nullptr);
  return true;
}

PyObject* Capture::EndPass(PyObject* result) {
  if (result == nullptr) root_raised_ = serving_;
  return result;
}

PyObject* Capture::CallModule(PyObject* original, PyObject* entered_code, PyObject* arguments, PyObject* keywords) {
  const Depth entered(inside_);
  const auto found = PyTuple_GET_SIZE(arguments) > 0 ? modules_.find(PyTuple_GET_ITEM(arguments, 0)) : modules_.end();
  if (found == modules_.end() || !recorder_->step().watching() || ThreadState::Get().suppressed > 0) {
    return PyObject_Call(original, arguments, keywords);
  }
  if (found->second.left_out && stages_.empty()) return CallLeftOut(found->second.name, original, arguments, keywords);
  const std::shared_ptr<Recorder> recorder = recorder_;
  const Module module = found->second;
  if (module.is_root) {
    if (!BeginPass(keywords)) return PyObject_Call(original, arguments, keywords);
    if (module.name->empty()) return EndPass(PyObject_Call(original, arguments, keywords));
  }
  if (!recorder->step().capturing()) return PyObject_Call(original, arguments, keywords);
  ThreadState& thread = Thread();
  const auto call = core::MakePooled<ModuleCall>(recorder, recorder->opener().BeginModule(module.name, thread));
  OpenRecord& record = call->forward();
  const ModuleFrame frame{recorder, call, module, entered_code};
  PyObject* result = nullptr;
  if (recorder->sampler() != nullptr && !stages_.Touches(record)) {  // it names its calls, and is no record
    recorder->opener().PushModule(thread, nullptr, record);
    result = PyObject_Call(original, arguments, keywords);
  } else if (!stages_.Touches(record)) {
    const std::span<PyObject* const> inputs = ItemsOf(arguments).subspan(1);
    fields_.Enter(record, inputs, keywords, nullptr, entered_code);
    recorder->opener().PushModule(thread, call, record);
    result = ObserveModule(frame, arguments, inputs, keywords, [&](PyObject* positional, PyObject* named) {
      return PyObject_Call(original, positional, named);
    });
  } else {
    record.touched = true;
    recorder->opener().PushModule(thread, call, record);
    const ObjectReference inputs = TupleOf(ItemsOf(arguments).subspan(1));
    if (inputs) {
      result = stages_.Run(
          record, inputs.get(), keywords,
          [&](PyObject* positional, PyObject* named, RestOfCall rest) {
            fields_.Enter(record, ItemsOf(positional), named, nullptr, entered_code);
            return ObserveModule(frame, positional, ItemsOf(positional), named, rest);
          },
          [&](PyObject* positional, PyObject* named) -> PyObject* {
            const ObjectReference whole = TupleOf(ItemsOf(positional), module.object.get());
            return whole ? PyObject_Call(original, whole.get(), named) : nullptr;
          });
    }
  }
  if (result == nullptr && module.is_root) EndPass(nullptr);
  recorder->opener().PopModule(thread, record);
  return result;
}

PyObject* Capture::CallLeftOut(const std::shared_ptr<const std::string>& module, PyObject* original,
                               PyObject* arguments, PyObject* keywords) {
  const std::shared_ptr<Recorder> recorder = recorder_;
  ThreadState& thread = ThreadState::Get();
  recorder->opener().BeginInside(module, thread);
  PyObject* const result = PyObject_Call(original, arguments, keywords);
  recorder->opener().EndInside(thread);
  return result;
}

PyObject* Capture::ObserveModule(const ModuleFrame& frame, PyObject* arguments, std::span<PyObject* const> inputs,
                                 PyObject* keywords, RestOfCall rest) {
  const std::shared_ptr<Recorder>& recorder = frame.recorder;
  OpenRecord& record = frame.call->forward();
  std::shared_ptr<ExactBackward> exact;
  ObjectReference passed;
  if (recorder->config().exact_backward && at::GradMode::is_enabled()) {
    exact = std::make_shared<ExactBackward>(recorder, record);
    passed = Behind(record, arguments, [&](const auto& tensors) { return exact->PassInputs(tensors); });
    arguments = passed.get();
  } else {
    recorder->faults().Contain(record, [&] {
      Tensors tensors;
      for (PyObject* input : inputs) CollectGradientTensors(input, tensors);
      frame.call->Enter(tensors);
    });
  }
  PyObject* result = rest(arguments, keywords);
  if (active_ != this) return result;
  if (result == nullptr) {
    fields_.Raised(record);
    return nullptr;
  }
  const ObjectReference parameters = ParametersOf(frame.module.object.get());
  fields_.Exit(record, nullptr, inputs, keywords, result, parameters.get(), frame.entered_code);
  EndModule(frame, result, parameters.get(), exact != nullptr);
  if (exact != nullptr) {
    const ObjectReference plain = ObjectReference::Steal(result);
    result = Behind(record, result, [&](const auto& tensors) { return exact->PassOutputs(tensors); }).release();
  }
  return result;
}

void Capture::EndModule(const ModuleFrame& frame, PyObject* result, PyObject* parameters, bool is_exact) {
  frame.recorder->faults().Contain(frame.call->forward(), [&] {
    PyObject *key, *parameter;
    Py_ssize_t position = 0;
    const bool has_parameters = parameters != nullptr && PyDict_Size(parameters) > 0;
    while (has_parameters && PyDict_Next(parameters, &position, &key, &parameter)) {
      if (THPVariable_Check(parameter) && PyUnicode_Check(key)) {
        parameter_gradients_.Watch(frame.module.name, PyUnicode_AsUTF8(key), THPVariable_Unpack(parameter));
      }
    }
    PyErr_Clear();
    if (is_exact) return;
    Tensors tensors;
    CollectGradientTensors(result, tensors);
    parameter_gradients_.NoteUses(frame.call->Exit(tensors, has_parameters));
  });
}

void Capture::AddModule(PyObject* module, const std::string& name, bool is_root) {
  modules_.insert_or_assign(module, Module{ObjectReference::Borrow(module), std::make_shared<const std::string>(name),
                                           is_root, !is_root && recorder_->opener().LeavesOut(name)});
}

void Capture::RemoveModule(PyObject* module) { modules_.erase(module); }

void Capture::ForgetModules() { modules_.clear(); }

ObjectReference Capture::Read(PyObject* tensor) {
  const Depth entered(inside_);
  auto reading = std::make_unique<TensorReading>(
      recorder_->Read(RefTo(THPVariable_Unpack(tensor)), recorder_->config().task == core::Task::kTensor));
  return ObjectReference::Steal(PyCapsule_New(reading.release(), kReadingName, [](PyObject* capsule) {
    delete static_cast<TensorReading*>(PyCapsule_GetPointer(capsule, kReadingName));
  }));
}

}  // namespace msprobe::capture
