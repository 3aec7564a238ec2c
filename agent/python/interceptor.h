#pragma once

#include <Python.h>

#include <functional>
#include <memory>
#include <string>

#include "agent/capture/recorder.h"

namespace msprobe::capture {

// The treatment of an intercepted Python function while capturing.
enum class Interception {
  kApi,       // a call of it is a record
  kOperator,  // it is the __call__ of torch.ops' operators: a call is a record of the operator, its first argument
  kModule,    // it is nn.Module.__call__
  kPhase,     // API calls inside have the phase as parent (clip_grad)
  kWait,      // it is Work.wait: what it waits for has arrived when it returns
  kSuppress,  // nothing inside is recorded (printing a tensor)
};

// The description of an operator object, or null if its calls are not recorded. Asked once an object.
using OperatorApi = std::function<std::shared_ptr<const Api>(PyObject* op)>;

// Makes a callable that runs `original` and does `interception` around it. It binds like a function when it stands in a
// class. api is used by kApi, phase by kPhase, operator_api by kOperator. A new reference, or null with an error set.
PyObject* MakeInterceptor(PyObject* original, Interception interception, std::shared_ptr<const Api> api,
                          std::string phase, OperatorApi operator_api);

// A callable whose call with (args, kwargs) is callable(*args, **kwargs), without a copy of either. A new reference, or
// null with an error set.
PyObject* MakeApplied(PyObject* callable);

}  // namespace msprobe::capture
