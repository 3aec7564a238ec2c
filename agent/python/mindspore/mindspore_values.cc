#include "agent/python/mindspore/mindspore_values.h"

#include <string>
#include <utility>
#include <vector>

#include "agent/mindspore/mindspore_source.h"
#include "agent/python/mindspore/program_error.h"
#include "agent/python/mindspore/tensor_memory.h"
#include "agent/python/object_text.h"
#include "agent/python/value_walker.h"

namespace msprobe::capture {

TensorReading ReadMindsporeTensor(Recorder& recorder, PyObject* tensor, bool save) {
  const TensorMemory memory(tensor);
  return recorder.Read(RefTo(memory.tensor()), save);
}

bool MindsporeValues::IsTensor(PyObject* value) const {
  return PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(tensor_.get()));
}

void MindsporeValues::See(PyObject* value, CallSampler::Sight& sight, int depth) const {
  if (IsTensor(value)) {
    static PyObject* const dtype_name = PyUnicode_InternFromString("dtype");
    static PyObject* const shape_name = PyUnicode_InternFromString("shape");
    const auto dtype = MindsporeDTypeOf(StringOf(TensorAttribute(value, dtype_name).get()));
    sight.Mix(static_cast<uint64_t>(dtype) + 1);
    uint64_t bytes = stats::ElementSize(dtype);
    const ObjectReference shape = TensorAttribute(value, shape_name);
    for (Py_ssize_t i = 0; shape && PyTuple_Check(shape.get()) && i < PyTuple_GET_SIZE(shape.get()); ++i) {
      const auto size = static_cast<uint64_t>(PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), i)));
      sight.Mix(size);
      bytes *= size;
    }
    PyErr_Clear();
    sight.input_bytes += bytes;
  } else if (depth <= ValueWalker::kMaxDepth && (PyList_Check(value) || PyTuple_Check(value))) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      See(PySequence_Fast_GET_ITEM(value, i), sight, depth + 1);
    }
  }
}

CallSampler::Sight MindsporeValues::SightOf(const Api& operation, std::span<PyObject* const> arguments,
                                            PyObject* keywords, bool with_gradients) const {
  CallSampler::Sight sight{.signature = reinterpret_cast<uintptr_t>(&operation), .has_gradients = with_gradients};
  for (PyObject* const argument : arguments) See(argument, sight);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (keywords != nullptr && PyDict_Next(keywords, &position, &key, &value)) See(value, sight);
  return sight;
}

uint64_t MindsporeValues::BytesOf(PyObject* result) const {
  CallSampler::Sight sight;
  See(result, sight);
  return sight.input_bytes;
}

bool MindsporeValues::PutFirst(PyObject* value, std::string_view key, ValueWalker& walker) {
  if (key == "dtype" || PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(dtype_.get()))) {
    walker.builder().Json("{\"type\": \"mindspore.dtype\", \"value\": " + JsonQuote(StringOf(value)) + "}");
    return true;
  }
  if (!IsTensor(value)) return false;
  walker.builder().Tensor(ReadMindsporeTensor(walker.recorder(), value, walker.save()));
  return true;
}

bool MindsporeValues::PutObject(PyObject*, ValueWalker&) { return false; }

bool MindsporeValues::PutOther(PyObject* value, ValueWalker& walker) {
  if (!ComesFrom(Py_TYPE(value), "mindspore.")) return false;
  const ObjectReference described = ObjectReference::Steal(PyObject_CallOneArg(describe_.get(), value));
  PyErr_Clear();
  if (described && PyUnicode_Check(described.get())) {
    walker.builder().Json(Utf8(described.get()));
    return true;
  }
  if (!described || !PyDict_Check(described.get())) return false;
  walker.WalkDescription(described.get());
  return true;
}

}  // namespace msprobe::capture
