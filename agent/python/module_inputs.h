#pragma once

#include <Python.h>

#include <string>

#include "absl/container/flat_hash_set.h"
#include "agent/python/object_reference.h"

namespace msprobe::capture {

// load: the arguments of some module calls are replaced by those of an earlier dump, before anything is recorded of
// them.
//
// Used with the GIL.
class ModuleInputs {
 public:
  // names: full forward names. replace: a Python callable (full name, args, kwargs) -> (args, kwargs), or None where
  // nothing is replaced; it is not to raise, and what it raises is dropped.
  ModuleInputs(absl::flat_hash_set<std::string> names, ObjectReference replace);

  // What a module is called with: args hold the module first; kwargs may be null.
  struct Call {
    ObjectReference arguments;
    ObjectReference keywords;
  };
  // True: the call is to be made with *call.
  bool Replace(const std::string& full_name, PyObject* arguments, PyObject* keywords, Call* call) const;

 private:
  const absl::flat_hash_set<std::string> names_;
  const ObjectReference replace_;
};

}  // namespace msprobe::capture
