#include "agent/python/module_inputs.h"

#include <utility>

#include "agent/python/untraced.h"

namespace msprobe::capture {

ModuleInputs::ModuleInputs(absl::flat_hash_set<std::string> names, ObjectReference replace)
    : names_(std::move(names)), replace_(std::move(replace)) {}

bool ModuleInputs::Replace(const std::string& full_name, PyObject* arguments, PyObject* keywords, Call* call) const {
  if (!names_.contains(full_name)) return false;
  const Py_ssize_t size = PyTuple_GET_SIZE(arguments);
  const ObjectReference inputs = ObjectReference::Steal(PyTuple_GetSlice(arguments, 1, size));
  const ObjectReference given =
      keywords == nullptr ? ObjectReference::Steal(PyDict_New()) : ObjectReference::Borrow(keywords);
  const Untraced untraced;
  const ObjectReference replaced = ObjectReference::Steal(
      PyObject_CallFunction(replace_.get(), "sOO", full_name.c_str(), inputs.get(), given.get()));
  if (!replaced || !PyTuple_Check(replaced.get()) || PyTuple_GET_SIZE(replaced.get()) != 2 ||
      !PyTuple_Check(PyTuple_GET_ITEM(replaced.get(), 0)) || !PyDict_Check(PyTuple_GET_ITEM(replaced.get(), 1))) {
    PyErr_Clear();
    return false;
  }
  PyObject* new_inputs = PyTuple_GET_ITEM(replaced.get(), 0);
  call->arguments = ObjectReference::Steal(PyTuple_New(PyTuple_GET_SIZE(new_inputs) + 1));
  if (!call->arguments) {
    PyErr_Clear();
    return false;
  }
  for (Py_ssize_t i = 0; i <= PyTuple_GET_SIZE(new_inputs); ++i) {
    PyObject* item = i == 0 ? PyTuple_GET_ITEM(arguments, 0) : PyTuple_GET_ITEM(new_inputs, i - 1);
    Py_INCREF(item);
    PyTuple_SET_ITEM(call->arguments.get(), i, item);
  }
  PyObject* new_keywords = PyTuple_GET_ITEM(replaced.get(), 1);
  if (PyDict_Size(new_keywords) > 0) call->keywords = ObjectReference::Borrow(new_keywords);
  return true;
}

}  // namespace msprobe::capture
