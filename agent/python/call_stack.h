#pragma once

#include <Python.h>

#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "agent/core/pool.h"
#include "agent/core/session.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// Python call stacks, interned: a stack seen before costs a walk over its frames and one lookup, no string.
// The GIL guards it; every function is called with it.
class CallStack {
 public:
  // Frames of files below `own_directory` are left out.
  CallStack(std::shared_ptr<core::Session> session, std::string own_directory);

  // Code objects that stand in for others and never show.
  static void HideCode(PyObject* code);

  // The stack of the calling thread, innermost first. `entered` is a code object to show as the innermost frame at its
  // last line, for a call whose own frame does not exist yet; may be null.
  core::StackId Take(PyObject* entered);

 private:
  struct Place {
    PyObject* code;
    int instruction;
    bool operator==(const Place& other) const = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Place& place) {
      return H::combine(std::move(hash), place.code, place.instruction);
    }
  };
  core::Frame Describe(PyObject* code, int line) const;
  // visit(frame, its code object), innermost first, but for what is hidden.
  template <typename Visit>
  static void ForEachFrame(const Visit& visit);

  static absl::flat_hash_set<PyObject*>& Hidden();

  const std::shared_ptr<core::Session> session_;
  const std::string own_directory_;
  core::PooledMap<core::PooledVector<Place>, core::StackId> known_;
  core::PooledVector<ObjectReference> kept_;  // code objects in known_: their addresses must not be given away
  core::PooledVector<Place> places_;          // reused
};

}  // namespace msprobe::capture
