#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "agent/capture/recorder.h"
#include "agent/capture/stages/call_stage.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// A stage that is written in Python: a callable stage(call) -> result, where `call` is a StagedCall.
//
// Nothing that the stage itself does is recorded. What the function raises goes through the stage as Python has it. Any
// other Exception of the stage is a fault of the record and stays here: the caller gets the result that the stage had
// last, and where it had none, the call is made as if the stage were not there.
class PythonStage final : public CallStage {
 public:
  // records: names of the records that the stage touches: full ones, or without count and direction for every call;
  // empty: all that scope, list and risk level select.
  PythonStage(std::shared_ptr<Recorder> recorder, std::string name, absl::flat_hash_set<std::string> records,
              ObjectReference stage);

  bool Touches(const OpenRecord& record) const override;
  PyObject* Run(const OpenRecord& record, PyObject* arguments, PyObject* keywords, RestOfCall rest) override;

 private:
  const std::shared_ptr<Recorder> recorder_;
  const std::string name_;
  const absl::flat_hash_set<std::string> records_;
  const ObjectReference stage_;
};

// Adds StagedCall to the module.
void BindStages(pybind11::module_& module);

}  // namespace msprobe::capture
