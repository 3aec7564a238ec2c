#pragma once

#include <Python.h>

#include "agent/python/object_reference.h"

namespace msprobe::capture {

// MindSpore raises what an operator of the program did wrong once, at whatever waits for its operators next. That may
// be a read of ours. Such an error is kept here, and whoever reads hands it to the program before it goes on. The GIL
// is held; no error is set before, and none is left.

// What MindSpore says of a tensor; null where it cannot say it. An error that does not come again was the program's (or
// a signal's), and is kept. One that does come again says that MindSpore cannot; but of what it can say of every tensor
// it is kept as well: the operator failed that should have made this one.
enum class Said { kOfEvery, kOfSome };
ObjectReference TensorAttribute(PyObject* tensor, PyObject* name, Said said = Said::kOfSome);
ObjectReference TensorMethod(PyObject* tensor, PyObject* name, Said said = Said::kOfSome);  // without arguments

void KeepProgramError(ObjectReference error);
// The first that was kept since; null: there is none.
ObjectReference TakeProgramError();

}  // namespace msprobe::capture
