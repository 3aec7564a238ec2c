#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "agent/capture/recorder.h"

namespace msprobe::capture {

// Intercepts C functions and methods by putting another method definition into the object: identity, pickling and
// names bound earlier keep holding, as it is the same object. The copy points at a trampoline, one a function, because
// a C function is given no pointer to its own definition.
//
// The GIL guards it. Slots are never given back: there are as many as functions ever swapped, below 2,000.
class MethodSwap {
 public:
  // Prepares `function` (a builtin function or a method descriptor) to be recorded as `api`. False: it is neither, its
  // calling convention is not known, or no slot is left for that convention.
  static bool Prepare(PyObject* function, std::shared_ptr<const Api> api);

  // A new builtin that does what `function` does and is recorded as `api`; for one object under two names. Null if not
  // possible.
  static PyObject* StandIn(PyObject* function, std::shared_ptr<const Api> api);

  // A new descriptor of the same method whose calls are never recorded, for one of the method's names. Null if
  // `descriptor` is no method descriptor.
  static PyObject* PlainMethod(PyObject* descriptor);

  // Puts the trampolines in, or the original definitions back. Idempotent.
  static void Install();
  static void Restore();
};

}  // namespace msprobe::capture
