#include "agent/python/interceptor.h"

#include <structmember.h>

#include "absl/container/flat_hash_map.h"
#include "agent/python/capture.h"
#include "agent/python/python_versions.h"

namespace msprobe::capture {
namespace {

// The operators that were called, kept so that an address stays theirs.
struct Operators {
  OperatorApi describe;
  absl::flat_hash_map<PyObject*, std::pair<ObjectReference, std::shared_ptr<const Api>>> known;

  std::shared_ptr<const Api> Find(PyObject* op) {
    const auto found = known.find(op);
    if (found != known.end()) return found->second.second;
    std::shared_ptr<const Api> api = describe(op);
    known.emplace(op, std::pair(ObjectReference::Borrow(op), api));
    return api;
  }
};

struct InterceptorObject {
  PyObject_HEAD PyObject* original;
  Interception interception;
  std::shared_ptr<const Api>* api;
  std::string* phase;
  Operators* operators;
};

PyObject* CallOriginal(InterceptorObject* self, PyObject* arguments, PyObject* keywords) {
  return PyObject_Call(self->original, arguments, keywords);
}

PyObject* Call(PyObject* object, PyObject* arguments, PyObject* keywords) {
  auto* self = reinterpret_cast<InterceptorObject*>(object);
  Capture* capture = Capture::active();
  // Outside of token_range only modules are looked at: a call of the root may open it.
  if (capture == nullptr || !(self->interception == Interception::kModule ? capture->recorder().step().watching()
                                                                          : capture->recorder().step().capturing())) {
    return CallOriginal(self, arguments, keywords);
  }
  switch (self->interception) {
    case Interception::kApi: {
      if (!Capture::Wants()) break;
      auto* items = reinterpret_cast<PyTupleObject*>(arguments);
      const ObjectReference held = ObjectReference::Borrow(object);
      return capture->CallApi(**self->api, {items->ob_item, static_cast<size_t>(PyTuple_GET_SIZE(arguments))}, keywords,
                              self->original, [&] { return CallOriginal(self, arguments, keywords); });
    }
    case Interception::kOperator: {
      if (!Capture::Wants() || PyTuple_GET_SIZE(arguments) == 0) break;
      const ObjectReference held = ObjectReference::Borrow(object);
      const std::shared_ptr<const Api> api = self->operators->Find(PyTuple_GET_ITEM(arguments, 0));
      if (api == nullptr) break;
      auto* items = reinterpret_cast<PyTupleObject*>(arguments);
      return capture->CallApi(*api, {items->ob_item + 1, static_cast<size_t>(PyTuple_GET_SIZE(arguments) - 1)},
                              keywords, PyTuple_GET_ITEM(arguments, 0),
                              [&] { return CallOriginal(self, arguments, keywords); });
    }
    case Interception::kModule:
      return capture->CallModule(self->original,
                                 PyFunction_Check(self->original) ? PyFunction_GET_CODE(self->original) : nullptr,
                                 arguments, keywords);
    case Interception::kPhase: {
      const std::shared_ptr<Recorder> recorder = capture->recorder().shared_from_this();
      recorder->opener().SetPhase(*self->phase);
      PyObject* result = CallOriginal(self, arguments, keywords);
      recorder->opener().SetPhase("");
      return result;
    }
    case Interception::kWait: {
      const ObjectReference work =
          ObjectReference::Borrow(PyTuple_GET_SIZE(arguments) > 0 ? PyTuple_GET_ITEM(arguments, 0) : Py_None);
      PyObject* result = CallOriginal(self, arguments, keywords);
      if (result != nullptr && Capture::active() == capture) capture->Waited(work.get());
      return result;
    }
    case Interception::kSuppress: {
      ThreadState& thread = ThreadState::Get();
      ++thread.suppressed;
      PyObject* result = CallOriginal(self, arguments, keywords);
      --thread.suppressed;
      return result;
    }
  }
  return CallOriginal(self, arguments, keywords);
}

int Traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<InterceptorObject*>(object)->original);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

int Clear(PyObject* object) {
  Py_CLEAR(reinterpret_cast<InterceptorObject*>(object)->original);
  return 0;
}

void Deallocate(PyObject* object) {
  PyObject_GC_UnTrack(object);
  auto* self = reinterpret_cast<InterceptorObject*>(object);
  Clear(object);
  delete self->api;
  delete self->phase;
  delete self->operators;
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* Bind(PyObject* object, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) {
    Py_INCREF(object);
    return object;
  }
  return PyMethod_New(object, instance);
}

// Name, doc, signature and the like are those of what it runs.
PyObject* GetAttribute(PyObject* object, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(object, name);
  if (found != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<InterceptorObject*>(object)->original, name);
}

PyMemberDef kMembers[] = {
    {"__wrapped__", T_OBJECT, offsetof(InterceptorObject, original), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject* Type() {
  static PyType_Slot slots[] = {
      {Py_tp_call, reinterpret_cast<void*>(&Call)},
      {Py_tp_traverse, reinterpret_cast<void*>(&Traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(&Clear)},
      {Py_tp_dealloc, reinterpret_cast<void*>(&Deallocate)},
      {Py_tp_descr_get, reinterpret_cast<void*>(&Bind)},
      {Py_tp_getattro, reinterpret_cast<void*>(&GetAttribute)},
      {Py_tp_members, kMembers},
      {0, nullptr},
  };
  // METHOD_DESCRIPTOR: called with the instance in front, as Bind would have it, without a bound method being made.
  static PyTypeObject* type =
      TypeNotMadeInPython({"msprobe._agent.Interceptor", sizeof(InterceptorObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR, slots});
  return type;
}

PyObject* Apply(PyObject* callable, PyObject* const* given, Py_ssize_t count) {
  if (count != 2 || !PyTuple_Check(given[0]) || !PyDict_Check(given[1])) {
    PyErr_SetString(PyExc_TypeError, "takes a tuple and a dict");
    return nullptr;
  }
  PyObject* const keywords = PyDict_GET_SIZE(given[1]) > 0 ? given[1] : nullptr;
  return Py_TYPE(callable) == Type() ? Call(callable, given[0], keywords) : PyObject_Call(callable, given[0], keywords);
}

}  // namespace

PyObject* MakeApplied(PyObject* callable) {
  static PyMethodDef definition{.ml_name = "apply",
                                .ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&Apply)),
                                .ml_flags = METH_FASTCALL,
                                .ml_doc = nullptr};
  return PyCFunction_New(&definition, callable);
}

PyObject* MakeInterceptor(PyObject* original, Interception interception, std::shared_ptr<const Api> api,
                          std::string phase, OperatorApi operator_api) {
  PyTypeObject* type = Type();
  if (type == nullptr) return nullptr;
  auto* self = PyObject_GC_New(InterceptorObject, type);
  if (self == nullptr) return nullptr;
  Py_INCREF(original);
  self->original = original;
  self->interception = interception;
  self->api = new std::shared_ptr<const Api>(std::move(api));
  self->phase = new std::string(std::move(phase));
  self->operators = new Operators{std::move(operator_api), {}};
  PyObject_GC_Track(self);
  return reinterpret_cast<PyObject*>(self);
}

}  // namespace msprobe::capture
