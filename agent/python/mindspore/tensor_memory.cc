#include "agent/python/mindspore/tensor_memory.h"

#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "agent/python/mindspore/program_error.h"
#include "agent/python/object_text.h"

namespace msprobe::capture {
namespace {

using stats::DType;
using Integers = absl::InlinedVector<int64_t, 6>;

// What an element of a buffer is, from its format in the struct module's letters. kOther: none that is known.
DType DTypeOfFormat(std::string_view format, Py_ssize_t size) {
  static constexpr DType kSigned[] = {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64};
  static constexpr DType kUnsigned[] = {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};
  const int power = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
  if (format == "Zf") return DType::kComplex64;
  if (format == "Zd") return DType::kComplex128;
  if (format.size() != 1) return DType::kOther;
  switch (format[0]) {
    case 'd':
      return DType::kFloat64;
    case 'f':
      return DType::kFloat32;
    case 'e':
      return DType::kFloat16;
    case '?':
      return DType::kBool;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return kSigned[power];
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return kUnsigned[power];
    default:
      return DType::kOther;
  }
}

bool HasNoMemoryYet(PyObject* tensor) {
  static PyObject* const has_init = PyUnicode_InternFromString("has_init");
  const ObjectReference waits = TensorAttribute(tensor, has_init);
  return waits && PyObject_IsTrue(waits.get()) == 1;
}

bool IsParameter(PyObject* tensor) {
  static PyObject* const kind = [] {
    const ObjectReference mindspore = ObjectReference::Steal(PyImport_ImportModule("mindspore"));
    PyErr_Clear();
    return Attribute(mindspore.get(), "Parameter").release();
  }();
  return kind != nullptr && PyType_Check(kind) && PyObject_TypeCheck(tensor, reinterpret_cast<PyTypeObject*>(kind));
}

bool IsOnHost(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("device");
  const ObjectReference device = TensorAttribute(tensor, name);
  return device && PyUnicode_Check(device.get()) && Utf8(device.get()).starts_with("CPU");
}

// By the identity of the type: MindSpore has one object for each, and keeps it.
DType DTypeOf(PyObject* tensor) {
  static auto& known = *new absl::flat_hash_map<PyObject*, DType>();
  static PyObject* const name = PyUnicode_InternFromString("dtype");
  ObjectReference dtype = TensorAttribute(tensor, name);
  const auto found = known.find(dtype.get());
  if (found != known.end()) return found->second;
  const DType type = MindsporeDTypeOf(StringOf(dtype.get()));
  if (type != DType::kOther) known.emplace(dtype.release(), type);
  return type;
}

// False: it is no tuple or list of integers.
bool TakeIntegers(PyObject* sequence, Integers& into) {
  if (sequence == nullptr || (!PyTuple_Check(sequence) && !PyList_Check(sequence))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    into.push_back(PyLong_AsLongLong(PySequence_Fast_GET_ITEM(sequence, i)));
  }
  const bool taken = PyErr_Occurred() == nullptr;
  PyErr_Clear();
  return taken;
}

}  // namespace

TensorMemory::TensorMemory(PyObject* tensor) {
  if (HasNoMemoryYet(tensor) || (!TakeOwn(tensor) && !TakeCopy(tensor))) TakeDescription(tensor);
  tensor_.dtype_name = dtype_name_;
  tensor_.sizes = sizes_;
  tensor_.strides = strides_;
}

TensorMemory::~TensorMemory() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

bool TensorMemory::TakeOwn(PyObject* tensor) {
  static PyObject* const data_ptr = PyUnicode_InternFromString("data_ptr");
  static PyObject* const shape = PyUnicode_InternFromString("shape");
  static PyObject* const stride = PyUnicode_InternFromString("stride");
  if (!IsOnHost(tensor)) return false;
  const DType dtype = DTypeOf(tensor);
  if (dtype == DType::kOther) return false;
  const ObjectReference address = TensorMethod(tensor, data_ptr);  // waits
  if (!address || !PyLong_Check(address.get())) return false;
  Integers sizes, strides;
  if (!TakeIntegers(TensorAttribute(tensor, shape).get(), sizes)) return false;
  if (!TakeIntegers(TensorMethod(tensor, stride).get(), strides) || strides.size() != sizes.size()) return false;
  sizes_ = std::move(sizes);
  strides_ = std::move(strides);
  tensor_.data = PyLong_AsVoidPtr(address.get());
  tensor_.dtype = dtype;
  tensor_.is_parameter = tensor_.data != nullptr && IsParameter(tensor);
  dtype_name_ = MindsporeDTypeName(dtype);
  return true;
}

bool TensorMemory::TakeCopy(PyObject* tensor) {
  static PyObject* const asnumpy = PyUnicode_InternFromString("asnumpy");
  array_ = TensorMethod(tensor, asnumpy, Said::kOfEvery);
  if (!array_) return false;
  if (PyObject_GetBuffer(array_.get(), &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return TakeCopyAsBytes(tensor);
  }
  TakeBuffer(DTypeOfFormat(buffer_.format, buffer_.itemsize));
  dtype_name_ = MindsporeDTypeName(tensor_.dtype);
  return true;
}

// numpy gives no buffer of types that are not its own, such as bfloat16.
bool TensorMemory::TakeCopyAsBytes(PyObject* tensor) {
  const DType dtype = DTypeOf(tensor);
  if (dtype == DType::kOther) return false;
  const char* unsigned_name = stats::ElementSize(dtype) == 2 ? "uint16" : "uint8";
  array_ = ObjectReference::Steal(PyObject_CallMethod(array_.get(), "view", "s", unsigned_name));
  const bool shown = array_ && PyObject_GetBuffer(array_.get(), &buffer_, PyBUF_STRIDES) == 0;
  PyErr_Clear();
  if (!shown) return false;
  TakeBuffer(dtype);
  dtype_name_ = MindsporeDTypeName(dtype);
  return true;
}

void TensorMemory::TakeBuffer(DType dtype) {
  tensor_.data = buffer_.buf;
  tensor_.dtype = dtype;
  for (int i = 0; i < buffer_.ndim; ++i) {
    sizes_.push_back(buffer_.shape[i]);
    strides_.push_back(buffer_.strides[i] / buffer_.itemsize);
  }
}

// Without its memory.
void TensorMemory::TakeDescription(PyObject* tensor) {
  static PyObject* const dtype = PyUnicode_InternFromString("dtype");
  static PyObject* const shape = PyUnicode_InternFromString("shape");
  dtype_name_ = StringOf(TensorAttribute(tensor, dtype, Said::kOfEvery).get());
  if (!TakeIntegers(TensorAttribute(tensor, shape, Said::kOfEvery).get(), sizes_)) sizes_.clear();
  strides_.assign(sizes_.size(), 0);
}

}  // namespace msprobe::capture
