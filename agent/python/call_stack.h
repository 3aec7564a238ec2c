#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "agent/core/content_hash.h"
#include "agent/core/pool.h"
#include "agent/core/session.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// Python call stacks, interned: a stack seen before costs a walk over its frames and one lookup, no string.
// Of a deep one the kInnermost and the kOutermost frames are taken, with a line between them that says so: each level
// of a program that nests a thousand calls would else have a text as long as all those around it have together. The GIL
// guards it; every function is called with it.
class CallStack {
 public:
  static constexpr size_t kInnermost = 384;
  static constexpr size_t kOutermost = 128;

  // Frames of files below `own_directory` are left out.
  CallStack(std::shared_ptr<core::Session> session, std::string own_directory);

  // Code objects that stand in for others and never show.
  static void HideCode(PyObject* code);

  // The stack of the calling thread, innermost first. `entered` is a code object to show as the innermost frame at its
  // last line, for a call whose own frame does not exist yet; may be null. 0: the session has no room for it.
  core::StackId Take(PyObject* entered);

 private:
  struct Place {
    PyObject* code;
    int64_t instruction;  // 64 bits: the bytes of a Place are hashed
  };
  core::Frame Describe(PyObject* code, int line) const;
  // visit(frame, its code object), innermost first, but for what is hidden.
  template <typename Visit>
  static void ForEachFrame(const Visit& visit);

  static absl::flat_hash_set<PyObject*>& Hidden();

  const std::shared_ptr<core::Session> session_;
  const std::string own_directory_;
  core::PooledMap<core::PayloadDigest, core::StackId> known_;  // by the hash of their places
  core::PooledMap<PyObject*, ObjectReference> kept_;           // code objects in them: no other may get their addresses
  bool has_room_ = true;
  core::PooledVector<Place> places_;  // reused
};

}  // namespace msprobe::capture
