#pragma once

#include <Python.h>

#include "agent/python/object_reference.h"

namespace msprobe::capture {

// While one stands, torch.compile does not look at the Python that runs on this thread. In a compiled program it
// watches every frame that begins. For calls of our own Python. The GIL is held, and no error is set.
class Untraced {
 public:
  // Once, before the first.
  static void Prepare() {
    const ObjectReference module = ObjectReference::Steal(PyImport_ImportModule("torch._C._dynamo.eval_frame"));
    if (module) watch_ = PyObject_GetAttrString(module.get(), "set_eval_frame");
    PyErr_Clear();
  }

  Untraced() : watcher_(Watch(Py_None)) {}
  ~Untraced() {
    if (!watcher_ || watcher_.get() == Py_None) return;
    const KeptError error;
    Watch(watcher_.get());
  }
  // While one stands inside an Untraced, torch.compile looks at Python again as it did before.
  class Lifted {
   public:
    explicit Lifted(const Untraced& untraced) : is_lifted_(untraced.watcher_ && untraced.watcher_.get() != Py_None) {
      if (is_lifted_) Watch(untraced.watcher_.get());
    }
    ~Lifted() {
      if (!is_lifted_) return;
      const KeptError error;
      Watch(Py_None);
    }
    Lifted(const Lifted&) = delete;
    Lifted& operator=(const Lifted&) = delete;

   private:
    const bool is_lifted_;
  };
  Untraced(const Untraced&) = delete;
  Untraced& operator=(const Untraced&) = delete;

 private:
  // Gives the watcher until now.
  static ObjectReference Watch(PyObject* watcher) {
    if (watch_ == nullptr) return {};
    ObjectReference before = ObjectReference::Steal(PyObject_CallOneArg(watch_, watcher));
    PyErr_Clear();
    return before;
  }

  static inline PyObject* watch_ = nullptr;  // kept for good

  const ObjectReference watcher_;
};

}  // namespace msprobe::capture
