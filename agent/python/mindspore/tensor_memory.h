#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "agent/mindspore/host_tensor.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// The memory of one of MindSpore's tensors: on a CPU the tensor's own, elsewhere the copy that its asnumpy() makes.
// Making it waits for the operator that computes the tensor. A parameter that has not been initialised stays so, and
// shows no memory. An error that MindSpore raises meanwhile is kept (program_error.h).
//
// It is made and destroyed with the GIL, and read with or without it. The caller holds the tensor as long.
class TensorMemory {
 public:
  explicit TensorMemory(PyObject* tensor);
  ~TensorMemory();
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;

  const HostTensor& tensor() const { return tensor_; }

 private:
  // False: its own memory is not on this host, or MindSpore does not say where it lies.
  bool TakeOwn(PyObject* tensor);
  // False: MindSpore gives no copy, or none whose elements are known.
  bool TakeCopy(PyObject* tensor);
  bool TakeCopyAsBytes(PyObject* tensor);
  void TakeBuffer(stats::DType dtype);
  void TakeDescription(PyObject* tensor);

  ObjectReference array_;
  Py_buffer buffer_{};
  std::string dtype_name_;
  absl::InlinedVector<int64_t, 6> sizes_;
  absl::InlinedVector<int64_t, 6> strides_;
  HostTensor tensor_;
};

}  // namespace msprobe::capture
