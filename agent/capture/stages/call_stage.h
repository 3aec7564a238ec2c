#pragma once

#include "absl/functional/function_ref.h"
#include "agent/capture/open_record.h"

// The interpreter's objects. Capture hands them on and never looks inside, so it includes no header of Python's.
struct _object;  // NOLINT(bugprone-reserved-identifier): the name is Python's
typedef struct _object PyObject;

namespace msprobe::capture {

// The rest of a call: the stages that come next and, at their end, the function itself. Gives a new reference, or null
// with an error set.
//
// arguments: a tuple of the positional arguments, as the record shows them (a method's with its object, a module's
// without it). keywords: a dict, or null. Both are borrowed.
using RestOfCall = absl::FunctionRef<PyObject*(PyObject* arguments, PyObject* keywords)>;

// One stage of the chain that an intercepted call passes through (StageChain), beside the observer that records the
// call: one that replaces inputs (load), replaces the output, or runs the call again.
//
// Such a stage changes what the program computes. So it stands in the chain only where the configuration asks for it,
// and each record that it touches says so (core::kTouched).
//
// Threads: any; every method is called with the GIL.
class CallStage {
 public:
  virtual ~CallStage() = default;

  // Whether the stage takes part in this call. Asked once a call, when nothing of it is recorded yet. Cheap.
  virtual bool Touches(const OpenRecord& record) const = 0;

  // Makes the call: runs `rest` no times, once or several times, with these arguments or with others, and gives the
  // call's result as `rest` does. An error that `rest` set goes on to the caller.
  virtual PyObject* Run(const OpenRecord& record, PyObject* arguments, PyObject* keywords, RestOfCall rest) = 0;
};

}  // namespace msprobe::capture
