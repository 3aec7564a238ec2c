#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "agent/mindspore/host_tensor.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// The memory of one of MindSpore's tensors, held while this stands: that which its asnumpy() shows. Making it waits for
// the operator that computes the tensor. A parameter that has not been initialised stays so, and shows no memory.
//
// It is made and destroyed with the GIL, and read with or without it.
class TensorMemory {
 public:
  explicit TensorMemory(PyObject* tensor);
  ~TensorMemory();
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;

  const HostTensor& tensor() const { return tensor_; }

 private:
  void Take(stats::DType dtype);
  void TakeAsBytes(stats::DType dtype);
  void TakeShape(PyObject* tensor);

  ObjectReference array_;
  Py_buffer buffer_{};
  std::string dtype_name_;
  absl::InlinedVector<int64_t, 6> sizes_;
  absl::InlinedVector<int64_t, 6> strides_;
  HostTensor tensor_;
};

}  // namespace msprobe::capture
