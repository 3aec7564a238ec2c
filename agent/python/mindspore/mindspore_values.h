#pragma once

#include <Python.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "agent/capture/filter/call_sampler.h"
#include "agent/capture/recorder.h"
#include "agent/python/framework_values.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// MindSpore's tensors and objects among the values of a call.
class MindsporeValues final : public FrameworkValues {
 public:
  // tensor, dtype: MindSpore's classes of tensors and of element types. describe: a Python callable for rare types
  // (P2POp; see mindspore/_describe.py), which gives None, JSON text, or a dict whose texts are JSON.
  MindsporeValues(ObjectReference tensor, ObjectReference dtype, ObjectReference describe)
      : tensor_(std::move(tensor)), dtype_(std::move(dtype)), describe_(std::move(describe)) {}

  bool IsTensor(PyObject* value) const override;
  bool IsOneValue(PyObject*) const override { return false; }
  bool PutFirst(PyObject* value, std::string_view key, ValueWalker& walker) override;
  bool PutObject(PyObject* value, ValueWalker& walker) override;
  bool PutOther(PyObject* value, ValueWalker& walker) override;

  // What a sampler sees of a call: its tensors, those in lists and tuples included. It waits for no operator.
  // with_gradients: gradients of the call may come.
  CallSampler::Sight SightOf(const Api& operation, std::span<PyObject* const> arguments, PyObject* keywords,
                             bool with_gradients) const;
  uint64_t BytesOf(PyObject* result) const;

 private:
  void See(PyObject* value, CallSampler::Sight& sight, int depth = 0) const;

  const ObjectReference tensor_;
  const ObjectReference dtype_;
  const ObjectReference describe_;
};

// Reads a tensor in its TensorMemory. The GIL is held.
TensorReading ReadMindsporeTensor(Recorder& recorder, PyObject* tensor, bool save);

}  // namespace msprobe::capture
