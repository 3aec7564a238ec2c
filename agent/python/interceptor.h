#pragma once

#include <Python.h>

#include <memory>
#include <string>

#include "agent/torch/recorder.h"

namespace msprobe::capture {

// What an intercepted Python function does while capturing.
enum class Interception {
  kApi,       // a call of it is a record
  kModule,    // it is nn.Module.__call__
  kPhase,     // API calls inside have the phase as parent (clip_grad)
  kSuppress,  // nothing inside is recorded (printing a tensor)
};

// Makes a callable that runs `original` and does `interception` around it. It binds like a function when it stands in a class.
// api is used by kApi, phase by kPhase. A new reference, or null with an error set.
PyObject* MakeInterceptor(PyObject* original, Interception interception, std::shared_ptr<const Api> api, std::string phase);

}  // namespace msprobe::capture
