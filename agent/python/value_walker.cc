#include "agent/python/value_walker.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "agent/python/object_text.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::capture {
namespace {

using stats::DType;

std::string FloatJson(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  const bool looks_integral = std::strpbrk(text, ".e") == nullptr;
  return looks_integral ? std::string(text) + ".0" : text;
}

struct NumpyTypes {
  PyTypeObject* array = nullptr;
  PyTypeObject* scalar = nullptr;

  static const NumpyTypes& Get() {
    static NumpyTypes types;
    if (types.array == nullptr) {
      types.array = LoadedType("numpy", "ndarray");
      types.scalar = LoadedType("numpy", "generic");
    }
    return types;
  }
};

uint8_t NumpyDType(std::string_view name) {
  static constexpr std::pair<std::string_view, DType> kNames[] = {
      {"float64", DType::kFloat64},     {"float32", DType::kFloat32},      {"float16", DType::kFloat16},
      {"int8", DType::kInt8},           {"int16", DType::kInt16},          {"int32", DType::kInt32},
      {"int64", DType::kInt64},         {"uint8", DType::kUInt8},          {"uint16", DType::kUInt16},
      {"uint32", DType::kUInt32},       {"uint64", DType::kUInt64},        {"bool", DType::kBool},
      {"complex64", DType::kComplex64}, {"complex128", DType::kComplex128}};
  for (const auto& [known, dtype] : kNames) {
    if (known == name) return static_cast<uint8_t>(dtype);
  }
  return static_cast<uint8_t>(DType::kOther);
}

bool Contains(std::span<const int> indexes, size_t index) {
  for (const int each : indexes) {
    if (static_cast<size_t>(each) == index) return true;
  }
  return false;
}

}  // namespace

void ValueWalker::WalkArguments(std::span<PyObject* const> arguments, std::span<const int> ignored) {
  builder_.BeginList();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (Contains(ignored, i)) {
      builder_.None();
    } else {
      Walk(arguments[i], {}, 1);
    }
  }
  builder_.End();
}

void ValueWalker::WalkKeywords(PyObject* keywords, std::string_view ignored) {
  builder_.BeginDict();
  if (keywords != nullptr) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(keywords, &position, &key, &value)) {
      const std::string_view name = PyUnicode_Check(key) ? Utf8(key) : std::string_view("?");
      builder_.Key(name);
      if (!ignored.empty() && name == ignored) {
        builder_.None();
      } else {
        Walk(value, name, 1);
      }
    }
  }
  builder_.End();
}

void ValueWalker::WalkResult(PyObject* result, std::span<const int> ignored) {
  if (!PyTuple_Check(result)) {
    builder_.BeginList();
    if (Contains(ignored, 0)) {
      builder_.None();
    } else {
      Walk(result, {}, 1);
    }
    return builder_.End();
  }
  if (framework_.IsOneValue(result) || PyObject_HasAttrString(result, "_fields")) return Walk(result, {}, 0);
  auto* items = reinterpret_cast<PyTupleObject*>(result);
  WalkArguments({items->ob_item, static_cast<size_t>(PyTuple_GET_SIZE(result))}, ignored);
}

void ValueWalker::Walk(PyObject* value, std::string_view key, int depth) {
  if (value == Py_None || depth > kMaxDepth) return builder_.None();
  if (framework_.PutFirst(value, key, *this)) return;
  const NumpyTypes& numpy = NumpyTypes::Get();
  if (numpy.array != nullptr && (PyObject_TypeCheck(value, numpy.array) || PyObject_TypeCheck(value, numpy.scalar))) {
    if (!WalkNumpy(value)) builder_.None();
    return;
  }
  if (PyBool_Check(value)) return builder_.Boolean(value == Py_True);
  if (PyLong_Check(value)) {
    int overflow = 0;
    const long long integer = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) return builder_.Integer(integer);
    PyErr_Clear();
    return builder_.Json("{\"type\": \"int\", \"value\": " + IntegerJson(value) + "}");
  }
  if (PyFloat_Check(value)) return builder_.Float(PyFloat_AS_DOUBLE(value));
  if (PyUnicode_Check(value)) return builder_.String(Utf8(value));
  if (framework_.PutObject(value, *this)) return;
  if (value == Py_Ellipsis) return builder_.Json(R"({"type": "ellipsis", "value": "..."})");
  if (PySlice_Check(value)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(value);
    const auto bound = [this](PyObject* part) {
      if (!framework_.IsTensor(part)) return IntegerJson(part);
      return std::string("null");  // a tensor as a bound would have to be waited for
    };
    return builder_.Json("{\"type\": \"slice\", \"value\": [" + bound(slice->start) + ", " + bound(slice->stop) + ", " +
                         bound(slice->step) + "]}");
  }
  if (WalkFields(value, depth)) return;
  if (PyList_Check(value) || PyTuple_Check(value)) return WalkItems(value, depth);
  if (PyDict_Check(value)) return WalkDict(value, depth);
  if (PyCapsule_IsValid(value, kReadingName)) {
    return builder_.Tensor(*static_cast<const TensorReading*>(PyCapsule_GetPointer(value, kReadingName)));
  }
  PutOther(value);
}

bool ValueWalker::WalkFields(PyObject* value, int depth) {
  ObjectReference fields;
  if (PyTuple_Check(value)) {
    if (PyTuple_CheckExact(value)) return false;
    fields = Attribute(value, "_fields");
    if (!fields || !PyTuple_Check(fields.get())) return false;
  } else {
    if (PyList_CheckExact(value) || PyDict_CheckExact(value) || PyType_Check(value)) return false;
    fields = Attribute(reinterpret_cast<PyObject*>(Py_TYPE(value)), "__dataclass_fields__");
    if (!fields || !PyDict_Check(fields.get())) return false;
  }
  const ObjectReference names = ObjectReference::Steal(PySequence_List(fields.get()));
  if (!names) {
    PyErr_Clear();
    return false;
  }
  builder_.BeginDict();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); ++i) {
    PyObject* name = PyList_GET_ITEM(names.get(), i);
    const ObjectReference item = ObjectReference::Steal(PyObject_GetAttr(value, name));
    if (!item) {
      PyErr_Clear();
      continue;
    }
    const std::string_view key = Utf8(name);
    builder_.Key(key);
    Walk(item.get(), key, depth + 1);
  }
  builder_.End();
  return true;
}

bool ValueWalker::WalkNumpy(PyObject* value) {
  if (PyObject_TypeCheck(value, NumpyTypes::Get().scalar)) {
    const ObjectReference item = ObjectReference::Steal(PyObject_CallMethod(value, "item", nullptr));
    if (!item) {
      PyErr_Clear();
      return false;
    }
    std::string json;
    if (PyBool_Check(item.get())) {
      json = item.get() == Py_True ? "true" : "false";
    } else if (PyLong_Check(item.get())) {
      json = IntegerJson(item.get());
    } else if (PyFloat_Check(item.get())) {
      json = FloatJson(PyFloat_AS_DOUBLE(item.get()));
    } else if (PyUnicode_Check(item.get())) {
      json = JsonQuote(Utf8(item.get()));
    } else {
      return false;
    }
    const char* name = std::strrchr(Py_TYPE(value)->tp_name, '.');
    builder_.Json("{\"type\": " + JsonQuote(name == nullptr ? Py_TYPE(value)->tp_name : name + 1) +
                  ", \"value\": " + json + "}");
    return true;
  }
  const ObjectReference dtype = Attribute(value, "dtype");
  if (!dtype) return false;
  const std::string name = StringOf(dtype.get());
  TensorReading reading;
  reading.type = "numpy.ndarray";
  const uint8_t wire = NumpyDType(name);
  Py_buffer buffer;
  if (PyObject_GetBuffer(value, &buffer, PyBUF_STRIDES) != 0) {
    PyErr_Clear();
    const ObjectReference shape = Attribute(value, "shape");
    for (Py_ssize_t i = 0; shape && i < PyTuple_Size(shape.get()); ++i) {
      reading.shape.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), i)));
    }
    reading.dtype = static_cast<uint8_t>(DType::kOther);
    reading.dtype_name = name;
  } else {
    std::vector<int64_t> strides;
    bool whole = true;
    for (int i = 0; i < buffer.ndim; ++i) {
      reading.shape.push_back(buffer.shape[i]);
      strides.push_back(buffer.itemsize == 0 ? 0 : buffer.strides[i] / buffer.itemsize);
      whole = whole && buffer.itemsize != 0 && buffer.strides[i] % buffer.itemsize == 0;
    }
    if (whole && wire != static_cast<uint8_t>(DType::kOther)) {
      recorder_.memory().ReadArray(buffer.buf, wire, reading.shape, strides, save_, reading);
    } else {
      reading.dtype = wire;
    }
    if (wire == static_cast<uint8_t>(DType::kOther)) reading.dtype_name = name;
    PyBuffer_Release(&buffer);
  }
  builder_.Tensor(reading);
  return true;
}

void ValueWalker::WalkItems(PyObject* sequence, int depth) {
  builder_.BeginList();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    const ObjectReference item = ObjectReference::Borrow(PySequence_Fast_GET_ITEM(sequence, i));
    Walk(item.get(), {}, depth + 1);
  }
  builder_.End();
}

void ValueWalker::WalkDict(PyObject* dict, int depth) {
  builder_.BeginDict();
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value)) {
    const ObjectReference held = ObjectReference::Borrow(value);
    if (PyUnicode_Check(key)) {
      builder_.Key(Utf8(key));
      Walk(value, Utf8(key), depth + 1);
    } else {
      builder_.Key(StringOf(key));
      Walk(value, {}, depth + 1);
    }
  }
  builder_.End();
}

void ValueWalker::WalkDescription(PyObject* dict) {
  builder_.BeginDict();
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value)) {
    const ObjectReference held = ObjectReference::Borrow(value);
    builder_.Key(Utf8(key));
    if (PyUnicode_Check(value)) {
      builder_.Json(Utf8(value));
    } else {
      Walk(value, {}, 2);
    }
  }
  builder_.End();
}

void ValueWalker::PutOther(PyObject* value) {
  if (!framework_.PutOther(value, *this)) builder_.None();
}

}  // namespace msprobe::capture
