#pragma once

#include <Python.h>

#include <memory>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "agent/capture/recorder.h"
#include "agent/capture/stages/stage_chain.h"
#include "agent/capture/steps/served_batch.h"
#include "agent/core/at_fork.h"
#include "agent/python/call_fields.h"
#include "agent/python/object_reference.h"
#include "agent/python/torch_values.h"
#include "agent/torch/autograd/module_call.h"
#include "agent/torch/autograd/parameter_gradients.h"

namespace msprobe::capture {

// Turns intercepted Python calls into records: it is the observer of the chain of stages that each call passes through
// (StageChain), and by default the only one in it. One is active at a time; the GIL guards everything here.
//
// A call always goes through: whatever fails on our side is contained, and what the callee raised reaches the caller
// unchanged.
class Capture {
 public:
  // describe(value): encodes the rare values of a call (pytorch/_describe.py).
  // communication(operation, arguments, keywords, step): what a call of torch.distributed says of itself
  // (pytorch/_communication.py).
  // thread_slot(step): the calling thread's slot among the threads that record in a step (_common/thread_slots.py).
  // with_tensors(value, tensors): `value` with its tensors that require grad replaced (pytorch/_with_tensors.py).
  // pass_failed(): a forward pass of a served batch raised, and another begins though nobody ended the step.
  struct Callbacks {
    ObjectReference describe;
    ObjectReference communication;
    ObjectReference thread_slot;
    ObjectReference with_tensors;
    ObjectReference pass_failed;
  };
  Capture(std::shared_ptr<Recorder> recorder, std::string own_directory, Callbacks callbacks);

  Recorder& recorder() { return *recorder_; }

  // The capture that intercepted calls go to, or null. Swapped functions look here first.
  static Capture* active() { return active_; }
  static void SetActive(Capture* capture) { active_ = capture; }

  // Whether a call made now by this thread should be recorded as an API: capturing, not inside another recorded API or
  // something suppressed, and not under a tracer (fake, proxy or functionalization mode).
  static bool Wants();

  using Original = absl::FunctionRef<PyObject*()>;
  // Runs `original` as a call of `api`. keywords: a dict or null. Gives what `original` gave. callable: the same
  // function for stages that call it with other arguments; calls inside this one are not recorded.
  PyObject* CallApi(const Api& api, std::span<PyObject* const> arguments, PyObject* keywords, PyObject* callable,
                    Original original);

  // Runs a module's call: arguments are the module and its positional arguments.
  PyObject* CallModule(PyObject* original, PyObject* entered_code, PyObject* arguments, PyObject* keywords);

  // The Work object of an asynchronous collective was waited for: its record is completed.
  void Waited(PyObject* work);
  // The step ends: what was not waited for stays without output.
  void ForgetWaits() { waits_.clear(); }

  void AddModule(PyObject* module, const std::string& name, bool is_root);
  void RemoveModule(PyObject* module);
  void ForgetModules();
  // The requests whose tokens the forward passes hold from now on; empty: they are not known.
  void SetBatch(std::vector<ServedBatch::Request> requests) {
    serving_ = !requests.empty();
    root_raised_ = false;
    batch_.Set(std::move(requests));
  }
  // The stages that calls pass through besides this observer.
  StageChain& stages() { return stages_; }

  // No call is inside, so it may be destroyed.
  bool idle() const { return inside_ == 0; }

  // PrecisionDebugger.save: `value` as the record {name}.{count}.debug; given again, it replaces the value before.
  void Save(const std::string& name, uint32_t count, PyObject* value);
  // A tensor's reading as an opaque object that Save accepts in place of the tensor.
  ObjectReference Read(PyObject* tensor);

 private:
  struct Module {
    ObjectReference object;
    std::shared_ptr<const std::string> name;
    bool is_root = false;
    bool left_out = false;  // by select
  };

  // One captured call of a module.
  struct ModuleFrame {
    const std::shared_ptr<Recorder>& recorder;
    const std::shared_ptr<ModuleCall>& call;
    const Module& module;
    PyObject* entered_code;
  };

  // A collective whose result is not there yet.
  struct Wait {
    OpenRecord record;
    const Api* api = nullptr;
    std::vector<ObjectReference> arguments;
    ObjectReference keywords;
    ObjectReference result;  // a Work, or a list of them; keeps their addresses theirs
    Py_ssize_t left = 0;     // Works not waited for
  };

  // Whether `result` is a Work or a list of Works. Then Waited completes the record.
  bool CompletesLater(const Api& api, const OpenRecord& record, std::span<PyObject* const> arguments,
                      PyObject* keywords, PyObject* result);
  // Records a call around `original`, whose fields have not been entered. sight: of a call that the sampler took.
  PyObject* ObserveApi(const std::shared_ptr<Recorder>& recorder, const Api& api, OpenRecord& record,
                       const CallSampler::Sight& sight, std::span<PyObject* const> arguments, PyObject* keywords,
                       Original original);
  // Runs a module's call that select leaves out.
  PyObject* CallLeftOut(const std::shared_ptr<const std::string>& module, PyObject* original, PyObject* arguments,
                        PyObject* keywords);
  // Records a module's call around `rest`, which is given these arguments. inputs: those that are recorded.
  PyObject* ObserveModule(const ModuleFrame& frame, PyObject* arguments, std::span<PyObject* const> inputs,
                          PyObject* keywords, RestOfCall rest);
  // Arranges for the backward of a call that gave `result`. parameters: a dict of the module's own, or null.
  void EndModule(const ModuleFrame& frame, PyObject* result, PyObject* parameters, bool is_exact);
  // The root is called: the next forward pass begins. False: capturing has ended.
  bool BeginPass(PyObject* keywords);
  // The call of a root has given `result`; null: it raised. Gives `result`.
  PyObject* EndPass(PyObject* result);
  // The calling thread's state, with its slot of the step.
  ThreadState& Thread();
  // `value` with its tensors that require grad behind a node of `pass`; `value` itself where there are none.
  using Pass = absl::FunctionRef<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
  ObjectReference Behind(const OpenRecord& record, PyObject* value, Pass pass);

  static inline Capture* active_ = nullptr;

  int inside_ = 0;  // calls of all threads
  const std::shared_ptr<Recorder> recorder_;
  const Callbacks callbacks_;
  TorchValues values_;
  CallFields fields_;
  ParameterGradients parameter_gradients_;
  ServedBatch batch_;
  bool serving_ = false;      // batch_ has requests
  bool root_raised_ = false;  // the last pass of a served batch did
  StageChain stages_;
  absl::flat_hash_map<PyObject*, std::shared_ptr<Wait>> waits_;  // by Work
  absl::flat_hash_map<PyObject*, Module> modules_;
  // A call that is under way ends in the child unobserved.
  const core::AtFork at_fork_{[] { active_ = nullptr; }};
};

}  // namespace msprobe::capture
