#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "agent/capture/recorder.h"
#include "agent/python/call_stack.h"
#include "agent/python/framework_values.h"

namespace msprobe::capture {

// Emits the fields of intercepted Python calls: arguments where a call begins, its result where it ends.
//
// The GIL guards it. Whatever fails is a fault of the record and stays here. An error that is set stays set only in
// Raised; elsewhere none is.
class CallFields {
 public:
  // `framework` outlives this. Frames of files below `own_directory` are left out of stacks.
  CallFields(std::shared_ptr<Recorder> recorder, FrameworkValues& framework, std::string own_directory);

  // api: null for a module. entered: a code object to show as the innermost frame, or null (CallStack::Take).
  void Enter(OpenRecord& record, std::span<PyObject* const> arguments, PyObject* keywords, const Api* api,
             PyObject* entered);
  // parameters: a dict of the module's own, or null.
  void Exit(OpenRecord& record, const Api* api, std::span<PyObject* const> arguments, PyObject* keywords,
            PyObject* result, PyObject* parameters, PyObject* entered);
  void Raised(OpenRecord& record);

  // A value saved by name: the record {name}.{count}.debug; given again, it replaces the value before.
  void Save(const std::string& name, uint32_t count, PyObject* value);

 private:
  core::StackId Stack(PyObject* entered);

  const std::shared_ptr<Recorder> recorder_;
  FrameworkValues& framework_;
  CallStack call_stack_;
};

}  // namespace msprobe::capture
