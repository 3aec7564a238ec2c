#include "agent/python/method_swap.h"

#include <array>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "agent/python/capture.h"

namespace msprobe::capture {
namespace {

struct Slot {
  std::shared_ptr<const Api> api;
  PyObject* function = nullptr;   // held; of a stand-in the function that it stands for
  PyMethodDef** place = nullptr;  // where the function keeps its definition; null: entered by its vectorcall
  PyMethodDef* original = nullptr;
  PyMethodDef copy{};
  bool is_method = false;   // self is the first argument of the call
  bool is_swapped = false;  // by Install; a stand-in always is
};

constexpr int kConventionFlags = METH_VARARGS | METH_KEYWORDS | METH_NOARGS | METH_O | METH_FASTCALL;

// Arguments of one call as one array: self first where the call has one.
class Arguments {
 public:
  Arguments(const Slot& slot, PyObject* self, PyObject* const* items, size_t count) {
    if (slot.is_method) all_.push_back(self);
    all_.insert(all_.end(), items, items + count);
  }
  std::span<PyObject* const> all() const { return all_; }

 private:
  absl::InlinedVector<PyObject*, 8> all_;
};

// What each convention does with a call; the trampolines only say which slot it is.

[[gnu::noinline]] PyObject* CallVarArgsKeywords(const Slot& slot, PyObject* self, PyObject* arguments,
                                                PyObject* keywords) {
  const auto original = reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void*>(slot.original->ml_meth));
  if (!Capture::Wants()) return original(self, arguments, keywords);
  const Arguments all(slot, self, reinterpret_cast<PyTupleObject*>(arguments)->ob_item,
                      static_cast<size_t>(PyTuple_GET_SIZE(arguments)));
  return Capture::active()->CallApi(*slot.api, all.all(), keywords, slot.function,
                                    [&] { return original(self, arguments, keywords); });
}

// `arguments` is the tuple, the one argument or nothing, as the convention has it.
[[gnu::noinline]] PyObject* CallPlain(const Slot& slot, PyObject* self, PyObject* arguments) {
  if (!Capture::Wants()) return slot.original->ml_meth(self, arguments);
  PyObject* const* items = nullptr;
  size_t count = 0;
  if ((slot.original->ml_flags & METH_O) != 0) {
    items = &arguments;
    count = 1;
  } else if ((slot.original->ml_flags & METH_VARARGS) != 0) {
    items = reinterpret_cast<PyTupleObject*>(arguments)->ob_item;
    count = static_cast<size_t>(PyTuple_GET_SIZE(arguments));
  }
  const Arguments all(slot, self, items, count);
  return Capture::active()->CallApi(*slot.api, all.all(), nullptr, slot.function,
                                    [&] { return slot.original->ml_meth(self, arguments); });
}

[[gnu::noinline]] PyObject* CallFastKeywords(const Slot& slot, PyObject* self, PyObject* const* arguments,
                                             Py_ssize_t count, PyObject* names) {
  const auto original = reinterpret_cast<_PyCFunctionFastWithKeywords>(reinterpret_cast<void*>(slot.original->ml_meth));
  if (!Capture::Wants()) return original(self, arguments, count, names);
  const Arguments all(slot, self, arguments, static_cast<size_t>(count));
  ObjectReference keywords;
  if (names != nullptr && PyTuple_GET_SIZE(names) > 0) {
    keywords = ObjectReference::Steal(PyDict_New());
    for (Py_ssize_t i = 0; keywords && i < PyTuple_GET_SIZE(names); ++i) {
      PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(names, i), arguments[count + i]);
    }
  }
  return Capture::active()->CallApi(*slot.api, all.all(), keywords.get(), slot.function,
                                    [&] { return original(self, arguments, count, names); });
}

// Slots by number, for the trampolines; written once, before the trampoline is reachable.
constexpr size_t kVarArgsKeywordsSlots = 1400;
constexpr size_t kFewSlots = 200;
const Slot* var_args_keywords_slots[kVarArgsKeywordsSlots];
const Slot* plain_slots[3 * kFewSlots];
const Slot* fast_keywords_slots[kFewSlots];

template <size_t I>
PyObject* VarArgsKeywords(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return CallVarArgsKeywords(*var_args_keywords_slots[I], self, arguments, keywords);
}
template <size_t I>
PyObject* Plain(PyObject* self, PyObject* arguments) {
  return CallPlain(*plain_slots[I], self, arguments);
}
template <size_t I>
PyObject* FastKeywords(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  return CallFastKeywords(*fast_keywords_slots[I], self, arguments, count, names);
}

template <size_t... I>
constexpr auto VarArgsKeywordsTable(std::index_sequence<I...>) {
  return std::array<PyCFunctionWithKeywords, sizeof...(I)>{&VarArgsKeywords<I>...};
}
template <size_t... I>
constexpr auto PlainTable(std::index_sequence<I...>) {
  return std::array<PyCFunction, sizeof...(I)>{&Plain<I>...};
}
template <size_t... I>
constexpr auto FastKeywordsTable(std::index_sequence<I...>) {
  return std::array<_PyCFunctionFastWithKeywords, sizeof...(I)>{&FastKeywords<I>...};
}

constexpr auto kVarArgsKeywords = VarArgsKeywordsTable(std::make_index_sequence<kVarArgsKeywordsSlots>());
constexpr auto kPlain = PlainTable(std::make_index_sequence<3 * kFewSlots>());
constexpr auto kFastKeywords = FastKeywordsTable(std::make_index_sequence<kFewSlots>());

// One storage for all slots: their addresses stay.
std::deque<Slot>& AllSlots() {
  static auto* slots = new std::deque<Slot>;
  return *slots;
}

// Gives `slot` a trampoline of the convention; null where none is left or the convention is not known.
PyCFunction TakeTrampoline(int convention, const Slot* slot) {
  static size_t used_var_args_keywords = 0;
  static size_t used_plain = 0;
  static size_t used_fast_keywords = 0;
  switch (convention) {
    case METH_VARARGS | METH_KEYWORDS:
      if (used_var_args_keywords == kVarArgsKeywords.size()) return nullptr;
      var_args_keywords_slots[used_var_args_keywords] = slot;
      return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(kVarArgsKeywords[used_var_args_keywords++]));
    case METH_VARARGS:
    case METH_NOARGS:
    case METH_O:
      if (used_plain == kPlain.size()) return nullptr;
      plain_slots[used_plain] = slot;
      return kPlain[used_plain++];
    case METH_FASTCALL | METH_KEYWORDS:
      if (used_fast_keywords == kFastKeywords.size()) return nullptr;
      fast_keywords_slots[used_fast_keywords] = slot;
      return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(kFastKeywords[used_fast_keywords++]));
    default:
      return nullptr;
  }
}

// Builtins of this convention are hashed and compared by their C function, and libraries keep tables of them
// (torch.compile does), so their definition must stay. They have no vectorcall entry of their own: giving them one
// intercepts every call, as the interpreter looks there first.
constexpr int kHashedConvention = METH_VARARGS | METH_KEYWORDS;

absl::flat_hash_map<PyObject*, const Slot*>& EnteredByVectorcall() {
  static auto* slots = new absl::flat_hash_map<PyObject*, const Slot*>;
  return *slots;
}

PyObject* Vectorcall(PyObject* callable, PyObject* const* arguments, size_t flags, PyObject* names) {
  const Slot& slot = *EnteredByVectorcall().find(callable)->second;
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  const ObjectReference positional = ObjectReference::Steal(PyTuple_New(count));
  if (!positional) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_INCREF(arguments[i]);
    PyTuple_SET_ITEM(positional.get(), i, arguments[i]);
  }
  ObjectReference keywords;
  if (names != nullptr && PyTuple_GET_SIZE(names) > 0) {
    keywords = ObjectReference::Steal(PyDict_New());
    if (!keywords) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
      if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(names, i), arguments[count + i]) != 0) return nullptr;
    }
  }
  return CallVarArgsKeywords(slot, PyCFunction_GET_SELF(callable), positional.get(), keywords.get());
}

std::vector<Slot*>& Swappable() {
  static auto* slots = new std::vector<Slot*>;
  return *slots;
}

Slot* MakeSlot(PyMethodDef* original, std::shared_ptr<const Api> api) {
  Slot& slot = AllSlots().emplace_back();
  const PyCFunction trampoline = TakeTrampoline(original->ml_flags & kConventionFlags, &slot);
  if (trampoline == nullptr) {
    AllSlots().pop_back();
    return nullptr;
  }
  slot.api = std::move(api);
  slot.original = original;
  slot.copy = *original;
  slot.copy.ml_meth = trampoline;
  return &slot;
}

PyMethodDef** DefinitionOf(PyObject* function) {
  if (PyCFunction_CheckExact(function)) return &reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  if (Py_IS_TYPE(function, &PyMethodDescr_Type)) return &reinterpret_cast<PyMethodDescrObject*>(function)->d_method;
  return nullptr;
}

}  // namespace

bool MethodSwap::Prepare(PyObject* function, std::shared_ptr<const Api> api) {
  PyMethodDef** place = DefinitionOf(function);
  if (place == nullptr) return false;
  if (PyCFunction_CheckExact(function) && ((*place)->ml_flags & kConventionFlags) == kHashedConvention) {
    Slot& hashed = AllSlots().emplace_back();
    hashed.api = std::move(api);
    hashed.original = *place;
    Py_INCREF(function);
    hashed.function = function;
    EnteredByVectorcall().emplace(function, &hashed);
    Swappable().push_back(&hashed);
    return true;
  }
  Slot* slot = MakeSlot(*place, std::move(api));
  if (slot == nullptr) return false;
  Py_INCREF(function);
  slot->function = function;
  slot->place = place;
  slot->is_method = !PyCFunction_CheckExact(function);
  Swappable().push_back(slot);
  return true;
}

PyObject* MethodSwap::StandIn(PyObject* function, std::shared_ptr<const Api> api) {
  if (!PyCFunction_CheckExact(function)) return nullptr;
  auto* builtin = reinterpret_cast<PyCFunctionObject*>(function);
  Slot* slot = MakeSlot(builtin->m_ml, std::move(api));
  if (slot == nullptr) return nullptr;
  slot->function = ObjectReference::Borrow(function).release();
  return PyCFunction_NewEx(&slot->copy, builtin->m_self, builtin->m_module);
}

PyObject* MethodSwap::PlainMethod(PyObject* descriptor) {
  if (!Py_IS_TYPE(descriptor, &PyMethodDescr_Type)) return nullptr;
  auto* method = reinterpret_cast<PyMethodDescrObject*>(descriptor);
  return PyDescr_NewMethod(method->d_common.d_type, method->d_method);
}

void MethodSwap::Install() {
  for (Slot* slot : Swappable()) {
    if (std::exchange(slot->is_swapped, true)) continue;
    if (slot->place == nullptr) {
      reinterpret_cast<PyCFunctionObject*>(slot->function)->vectorcall = &Vectorcall;
    } else {
      *slot->place = &slot->copy;
    }
  }
}

void MethodSwap::Restore() {
  for (Slot* slot : Swappable()) {
    if (!std::exchange(slot->is_swapped, false)) continue;
    if (slot->place == nullptr) {
      reinterpret_cast<PyCFunctionObject*>(slot->function)->vectorcall = nullptr;
    } else {
      *slot->place = slot->original;
    }
  }
}

}  // namespace msprobe::capture
