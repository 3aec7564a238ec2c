#pragma once

#include <Python.h>

#include <utility>

namespace msprobe::capture {

// An owned reference to a Python object. The GIL is held wherever one is made, copied or destroyed.
class ObjectReference {
 public:
  ObjectReference() = default;
  static ObjectReference Steal(PyObject* object) { return ObjectReference(object); }
  static ObjectReference Borrow(PyObject* object) {
    Py_XINCREF(object);
    return ObjectReference(object);
  }
  ObjectReference(const ObjectReference& other) : object_(other.object_) { Py_XINCREF(object_); }
  ObjectReference(ObjectReference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ObjectReference& operator=(ObjectReference other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~ObjectReference() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit ObjectReference(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

// Keeps the error that is set (if any) and clears it for the scope; puts it back at the end. What is raised inside is
// dropped.
class KeptError {
 public:
  KeptError() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~KeptError() { PyErr_Restore(type_, value_, traceback_); }
  KeptError(const KeptError&) = delete;
  KeptError& operator=(const KeptError&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

}  // namespace msprobe::capture
