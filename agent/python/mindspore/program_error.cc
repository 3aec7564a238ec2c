#include "agent/python/mindspore/program_error.h"

#include <utility>

namespace msprobe::capture {
namespace {

constexpr int kTries = 3;  // MindSpore may raise an error of one operator twice

ObjectReference& Kept() {
  static auto& kept = *new ObjectReference;  // destroyed never: there may be no interpreter then
  return kept;
}

// The error that is set, which is set no more.
ObjectReference Fetched() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return ObjectReference::Steal(value);
}

// ask: gives a new reference, or null with an error set.
template <typename Ask>
ObjectReference AskMindspore(Said said, Ask ask) {
  ObjectReference answer = ObjectReference::Steal(ask());
  if (answer) return answer;
  ObjectReference error = Fetched();
  if (PyObject_TypeCheck(error.get(), reinterpret_cast<PyTypeObject*>(PyExc_AttributeError))) return answer;
  for (int i = 0; i < kTries && !answer; ++i) {
    answer = ObjectReference::Steal(ask());
    PyErr_Clear();
  }
  if (answer || said == Said::kOfEvery) KeepProgramError(std::move(error));
  return answer;
}

}  // namespace

ObjectReference TensorAttribute(PyObject* tensor, PyObject* name, Said said) {
  return AskMindspore(said, [&] { return PyObject_GetAttr(tensor, name); });
}

ObjectReference TensorMethod(PyObject* tensor, PyObject* name, Said said) {
  return AskMindspore(said, [&] { return PyObject_CallMethodNoArgs(tensor, name); });
}

void KeepProgramError(ObjectReference error) {
  if (!Kept()) Kept() = std::move(error);
}

ObjectReference TakeProgramError() { return std::exchange(Kept(), ObjectReference()); }

}  // namespace msprobe::capture
