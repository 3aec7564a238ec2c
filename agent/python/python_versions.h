#pragma once

#include <Python.h>
#include <frameobject.h>

// What minor versions of CPython have differently. Everything else is the same from 3.9 on.

namespace msprobe::capture {

// The place in its code at which a frame stands: a number that differs between places, and no more.
inline int LastInstruction(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

// A type of which C++ alone makes instances. Null with an error set where Python cannot make the type.
inline PyTypeObject* TypeNotMadeInPython(PyType_Spec spec) {
#if PY_VERSION_HEX >= 0x030A0000
  spec.flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
#endif
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
#if PY_VERSION_HEX < 0x030A0000
  if (type != nullptr) type->tp_new = nullptr;  // which it has of object
#endif
  return type;
}

}  // namespace msprobe::capture
