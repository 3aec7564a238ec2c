#pragma once

#include <Python.h>
#include <frameobject.h>

// What minor versions of CPython have differently. Everything else is the same from 3.10 on.

namespace msprobe::capture {

// The place in its code at which a frame stands: a number that differs between places, and no more.
inline int LastInstruction(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

}  // namespace msprobe::capture
