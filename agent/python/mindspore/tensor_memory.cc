#include "agent/python/mindspore/tensor_memory.h"

#include <string_view>

#include "agent/python/object_text.h"

namespace msprobe::capture {
namespace {

using stats::DType;

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
  static PyObject* const name = PyUnicode_InternFromString("has_init");
  const ObjectReference waits = ObjectReference::Steal(PyObject_GetAttr(tensor, name));
  PyErr_Clear();
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

// Whether the tensor's own memory lies there, and no copy of a device's.
bool LiesAt(PyObject* tensor, const void* data) {
  static PyObject* const data_ptr = PyUnicode_InternFromString("data_ptr");
  const ObjectReference address = ObjectReference::Steal(PyObject_CallMethodNoArgs(tensor, data_ptr));
  const bool same = address && PyLong_Check(address.get()) && PyLong_AsVoidPtr(address.get()) == data;
  PyErr_Clear();
  return same;
}

}  // namespace

TensorMemory::TensorMemory(PyObject* tensor) {
  static PyObject* const asnumpy = PyUnicode_InternFromString("asnumpy");
  if (!HasNoMemoryYet(tensor)) array_ = ObjectReference::Steal(PyObject_CallMethodNoArgs(tensor, asnumpy));
  PyErr_Clear();
  if (array_ && PyObject_GetBuffer(array_.get(), &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
    Take(DTypeOfFormat(buffer_.format, buffer_.itemsize));
    dtype_name_ = MindsporeDTypeName(tensor_.dtype);
  } else {
    PyErr_Clear();
    dtype_name_ = StringOf(Attribute(tensor, "dtype").get());
    TakeAsBytes(MindsporeDTypeOf(dtype_name_));
    if (tensor_.data == nullptr) TakeShape(tensor);
  }
  tensor_.is_parameter = tensor_.data != nullptr && IsParameter(tensor) && LiesAt(tensor, tensor_.data);
  tensor_.dtype_name = dtype_name_;
  tensor_.sizes = sizes_;
  tensor_.strides = strides_;
}

TensorMemory::~TensorMemory() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

void TensorMemory::Take(DType dtype) {
  tensor_.data = buffer_.buf;
  tensor_.dtype = dtype;
  for (int i = 0; i < buffer_.ndim; ++i) {
    sizes_.push_back(buffer_.shape[i]);
    strides_.push_back(buffer_.strides[i] / buffer_.itemsize);
  }
}

// numpy gives no buffer of types that are not its own, such as bfloat16.
void TensorMemory::TakeAsBytes(DType dtype) {
  const char* unsigned_name = stats::ElementSize(dtype) == 2 ? "uint16" : "uint8";
  if (!array_ || stats::ElementSize(dtype) == 0) return;
  array_ = ObjectReference::Steal(PyObject_CallMethod(array_.get(), "view", "s", unsigned_name));
  if (array_ && PyObject_GetBuffer(array_.get(), &buffer_, PyBUF_STRIDES) == 0) Take(dtype);
  PyErr_Clear();
}

void TensorMemory::TakeShape(PyObject* tensor) {
  const ObjectReference shape = Attribute(tensor, "shape");
  for (Py_ssize_t i = 0; shape && PyTuple_Check(shape.get()) && i < PyTuple_GET_SIZE(shape.get()); ++i) {
    sizes_.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), i)));
    strides_.push_back(0);
  }
  PyErr_Clear();
}

}  // namespace msprobe::capture
