#pragma once

#include <Python.h>

#include <span>
#include <string_view>

#include "agent/capture/open_record.h"

namespace msprobe::capture {

class ValueWalker;

// The part of a framework that the walk over a call's values needs: its tensors, and its own objects among the others.
//
// Every function is called with the GIL and no error set, and leaves none set.
class FrameworkValues {
 public:
  virtual ~FrameworkValues() = default;

  virtual bool IsTensor(PyObject* value) const = 0;
  // Whether a tuple stands for one value (a shape), not for several results of a call.
  virtual bool IsOneValue(PyObject* tuple) const = 0;

  // Each puts `value` where it is one of its kind; false: it is not, and nothing was put.
  //
  // A tensor, or what is shown under this keyword alone (dtype). Asked first.
  virtual bool PutFirst(PyObject* value, std::string_view key, ValueWalker& walker) = 0;
  // An object that C++ can show. Asked where the value is none of Python's numbers and texts.
  virtual bool PutObject(PyObject* value, ValueWalker& walker) = 0;
  // A rare object. Asked last.
  virtual bool PutOther(PyObject* value, ValueWalker& walker) = 0;

  // Puts the field "communication" of a call between ranks that begins, where it can be told.
  virtual void PutCommunication(const Api& /*api*/, const OpenRecord& /*record*/,
                                std::span<PyObject* const> /*arguments*/, PyObject* /*keywords*/,
                                ValueWalker& /*walker*/) {}
};

}  // namespace msprobe::capture
