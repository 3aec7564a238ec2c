#pragma once

#include <Python.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "agent/capture/filter/call_sampler.h"
#include "agent/capture/open_record.h"
#include "agent/python/framework_values.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// torch's tensors and objects among the values of a call.
class TorchValues final : public FrameworkValues {
 public:
  // `describe` is a Python callable for rare types (ProcessGroup, ReduceOp, P2POp, DTensor; see pytorch/_describe.py):
  // it gives None, JSON text, a dict whose texts are JSON, or a tuple (tensor, JSON attributes). May be null.
  // `communication` is one for calls of torch.distributed (Communications.describe of pytorch/_communication.py): it
  // gives a dict, or None. May be null.
  TorchValues(ObjectReference describe, ObjectReference communication)
      : describe_(std::move(describe)), communication_(std::move(communication)) {}

  bool IsTensor(PyObject* value) const override;
  bool IsOneValue(PyObject* tuple) const override;
  bool PutFirst(PyObject* value, std::string_view key, ValueWalker& walker) override;
  bool PutObject(PyObject* value, ValueWalker& walker) override;
  bool PutOther(PyObject* value, ValueWalker& walker) override;
  void PutCommunication(const Api& api, const OpenRecord& record, std::span<PyObject* const> arguments,
                        PyObject* keywords, ValueWalker& walker) override;

 private:
  const ObjectReference describe_;
  const ObjectReference communication_;
};

// The tensors that require grad, depth first, in lists, tuples and dicts (as full backward hooks see them),
// dataclasses' dict bases included.
using Tensors = absl::InlinedVector<at::Tensor, 4>;
void CollectGradientTensors(PyObject* value, Tensors& tensors, int depth = 0);

// What a sampler sees of a call of `operation`: its tensors, those in lists and tuples included.
CallSampler::Sight SightOf(const Api& operation, std::span<PyObject* const> arguments, PyObject* keywords);

// The bytes of the tensors that a call returned, those in lists and tuples included.
uint64_t BytesOf(PyObject* result);

// The first tensor a call returned, looking into first items; undefined if there is none.
at::Tensor FirstTensor(PyObject* value);

}  // namespace msprobe::capture
