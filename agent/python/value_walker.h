#pragma once

#include <Python.h>

#include <span>
#include <string_view>

#include "agent/capture/fragments/fragment_builder.h"
#include "agent/capture/recorder.h"
#include "agent/python/framework_values.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// Name of the capsules that stand for a tensor read earlier (a TensorReading).
inline constexpr char kReadingName[] = "msprobe.TensorReading";

// Walks arguments and results and puts them into a fragment: the encodings of dump.json's values. Whatever is a
// framework's is put by its FrameworkValues.
//
// Every function is called with the GIL and no error set, and leaves none set. What cannot be encoded becomes null; a
// walk never fails. Depth is bounded (kMaxDepth), so objects that contain themselves end.
class ValueWalker {
 public:
  // A dict is three messages a level on the wire, and protobuf decodes 100 levels.
  static constexpr int kMaxDepth = 24;

  // save: tensors' bytes are kept. All outlive this.
  ValueWalker(Recorder& recorder, FragmentBuilder& builder, FrameworkValues& framework, bool save)
      : recorder_(recorder), builder_(builder), framework_(framework), save_(save) {}

  Recorder& recorder() { return recorder_; }
  FragmentBuilder& builder() { return builder_; }
  bool save() const { return save_; }

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
  // A dict whose texts are JSON.
  void WalkDescription(PyObject* dict);

 private:
  void Walk(PyObject* value, std::string_view key, int depth);
  bool WalkFields(PyObject* value, int depth);  // named tuples, dataclasses
  bool WalkNumpy(PyObject* value);
  void WalkItems(PyObject* sequence, int depth);
  void WalkDict(PyObject* dict, int depth);
  void PutOther(PyObject* value);

  Recorder& recorder_;
  FragmentBuilder& builder_;
  FrameworkValues& framework_;
  const bool save_;
};

}  // namespace msprobe::capture
