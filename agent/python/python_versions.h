#pragma once

#include <Python.h>
#include <frameobject.h>

// What minor versions of CPython have under different names. Everything else is the same from 3.9 on.

namespace msprobe::capture {

// The place in its code at which a frame stands: a number that differs between places, and no more.
inline int LastInstruction(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

// A type that Python code cannot make objects of. Before 3.10 nothing says so.
#ifdef Py_TPFLAGS_DISALLOW_INSTANTIATION
inline constexpr unsigned long kNotMadeByPython = Py_TPFLAGS_DISALLOW_INSTANTIATION;
#else
inline constexpr unsigned long kNotMadeByPython = 0;
#endif

}  // namespace msprobe::capture
