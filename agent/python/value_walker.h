#pragma once

#include <Python.h>

#include <ATen/core/Tensor.h>

#include <span>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "agent/capture/fragments/fragment_builder.h"
#include "agent/capture/recorder.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// Name of the capsules that stand for a tensor read earlier (a TensorReading).
inline constexpr char kReadingName[] = "msprobe.TensorReading";

// Walks arguments and results and puts them into a fragment: the encodings of dump.json's values.
//
// Every function is called with the GIL and no error set, and leaves none set. What cannot be encoded becomes null; a
// walk never fails. Depth is bounded (kMaxDepth), so objects that contain themselves end.
class ValueWalker {
 public:
  // A dict is three messages a level on the wire, and protobuf decodes 100 levels.
  static constexpr int kMaxDepth = 24;

  // `describe` is a Python callable for rare types (ProcessGroup, ReduceOp, P2POp, DTensor; see msprobe/_describe.py):
  // it gives None, JSON text, a dict whose texts are JSON, or a tuple (tensor, JSON attributes).
  ValueWalker(Recorder& recorder, FragmentBuilder& builder, PyObject* describe, bool save)
      : recorder_(recorder), builder_(builder), describe_(describe), save_(save) {}

  // One value; `key` is the dict key or keyword it stands under, empty in lists: device and dtype are shown under their
  // keywords only.
  void Walk(PyObject* value, std::string_view key = {}) { Walk(value, key, 0); }

  // Positional arguments as a list; those whose index is in `ignored` become null.
  void WalkArguments(std::span<PyObject* const> arguments, std::span<const int> ignored);
  // Keyword arguments as a dict, from a dict (may be null).
  void WalkKeywords(PyObject* keywords, std::string_view ignored);
  // The result of a call: the items of a tuple are the list itself, a named tuple is its dict, anything else a list of
  // one.
  void WalkResult(PyObject* result, std::span<const int> ignored);

 private:
  void Walk(PyObject* value, std::string_view key, int depth);
  void WalkTensor(PyObject* value);
  bool WalkTorchObject(PyObject* value);
  bool WalkFields(PyObject* value, int depth);  // named tuples, dataclasses
  bool WalkNumpy(PyObject* value);
  void WalkItems(PyObject* sequence, int depth);
  void WalkDict(PyObject* dict, int depth);
  void WalkDescription(PyObject* dict);
  void Describe(PyObject* value);

  Recorder& recorder_;
  FragmentBuilder& builder_;
  PyObject* const describe_;
  const bool save_;
};

// The tensors that require grad, depth first, in lists, tuples and dicts (as full backward hooks see them),
// dataclasses' dict bases included.
using Tensors = absl::InlinedVector<at::Tensor, 4>;
void CollectGradientTensors(PyObject* value, Tensors& tensors, int depth = 0);

// The first tensor a call returned, looking into first items; undefined if there is none.
at::Tensor FirstTensor(PyObject* value);

// JSON text of a Python string, quoted and escaped.
std::string JsonQuote(std::string_view text);

}  // namespace msprobe::capture
