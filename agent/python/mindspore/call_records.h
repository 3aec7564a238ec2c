#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>

#include "agent/capture/recorder.h"
#include "agent/python/call_fields.h"
#include "agent/python/mindspore/mindspore_values.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// Turns calls of MindSpore's cells and functions into records, as their interception in Python tells of them
// (mindspore/_calls.py): where a call begins and ends, and which gradients passed through it.
//
// The GIL guards everything here. Whatever fails is contained; no method raises.
class CallRecords : public std::enable_shared_from_this<CallRecords> {
 public:
  // thread_slot: as Capture::Callbacks.
  CallRecords(std::shared_ptr<Recorder> recorder, std::string own_directory, MindsporeValues values,
              ObjectReference thread_slot);

  // One call that is recorded. It lives until its gradients have passed.
  class Call {
   public:
    // Task check leaves it out: it is no record, and has no gradients.
    bool left_out() const { return left_out_; }
    // A stage takes part in it (TouchCalls).
    bool touched() const { return record_.touched; }
    std::string name() const { return record_.FullName(); }
    uint32_t step() const { return record_.step; }
    // The call gave `result`. parameters: a dict of the cell's own, or null.
    void End(PyObject* result, PyObject* parameters);
    // An error is set, and stays set.
    void Raised();
    // Reads a gradient of the call, now: an opaque object for the tuples below. None where none is recorded.
    ObjectReference ReadGradient(PyObject* gradient);
    // Tuples of gradients that were read, or None: first those of the results, then those of the arguments.
    void BeginBackward(PyObject* gradients);
    void EndBackward(PyObject* gradients);

   private:
    friend class CallRecords;
    enum class Side : uint8_t { kArriving, kLeaving };
    void EmitGradients(Side side, PyObject* gradients);
    bool is_cell() const { return api_ == nullptr; }
    void Leave(ThreadState& thread);

    std::shared_ptr<CallRecords> records_;
    OpenRecord record_;
    OpenRecord backward_;
    const Api* api_ = nullptr;  // null: a call of a cell
    uint32_t step_ = 0;         // StepState::id
    // Of construct.json: a call inside another one has its backward inside that one's, whenever gradients pass.
    core::ParentId backward_parent_ = 0;
    core::ParentId backward_self_ = 0;  // of a cell
    bool left_out_ = false;
    CallSampler::Sight sight_;  // of a call that a sampler took
  };

  // Whether a call made now by this thread is recorded as an API: capturing, and not inside another recorded API.
  bool Wants() const;
  bool watching() const { return recorder_->step().watching(); }
  // Whether calls of APIs that begin from now on, and that scope, list and risk level select, pass through a stage. It
  // is written in Python: the caller of BeginApi runs it, and their records say that they were touched.
  void TouchCalls(bool touches) { touches_calls_ = touches; }
  // arguments: a tuple. keywords: a dict or null. with_gradients: gradients of the call may come. Until the call ends,
  // calls inside an API are not recorded.
  std::shared_ptr<Call> BeginApi(const Api& api, PyObject* arguments, PyObject* keywords, bool with_gradients);
  // Null: the call is not recorded.
  std::shared_ptr<Call> BeginCell(const std::shared_ptr<const std::string>& name, PyObject* arguments,
                                  PyObject* keywords);
  // A root is called: the next forward pass begins.
  void BeginPass() { recorder_->step().BeginToken(); }
  // A gradient of a parameter of the cell arrived.
  void ParameterGradient(const std::shared_ptr<const std::string>& cell, const std::string& parameter,
                         PyObject* gradient);

  void Save(const std::string& name, uint32_t count, PyObject* value) { fields_.Save(name, count, value); }
  // A tensor's reading as an opaque object that Save accepts in place of the tensor.
  ObjectReference Read(PyObject* tensor) { return Read(tensor, recorder_->config().task == core::Task::kTensor); }

 private:
  ObjectReference Read(PyObject* tensor, bool save);
  std::shared_ptr<Call> NewCall(OpenRecord record, const Api* api, const ThreadState& thread);
  // Task check: whether its sampler takes a call that begins.
  bool Takes(Call& call, PyObject* arguments, PyObject* keywords, bool with_gradients);

  const std::shared_ptr<Recorder> recorder_;
  const ObjectReference thread_slot_;
  MindsporeValues values_;
  CallFields fields_;
  bool touches_calls_ = false;
};

}  // namespace msprobe::capture
