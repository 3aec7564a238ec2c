#include "agent/python/method_swap.h"

#include <array>
#include <deque>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "agent/python/capture.h"

namespace msprobe::capture {
namespace {

struct Slot {
  std::shared_ptr<const Api> api;
  PyObject* function = nullptr;      // held
  PyMethodDef** place = nullptr;     // where the function keeps its definition
  PyMethodDef* original = nullptr;
  PyMethodDef copy{};
  bool is_method = false;            // self is the first argument of the call
  bool is_swapped = false;           // by Install; a stand-in always is
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

std::deque<Slot>& Slots(int convention);

template <int kConvention, size_t I>
Slot& SlotAt() {
  return Slots(kConvention)[I];
}

template <size_t I>
PyObject* VarArgsKeywords(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const Slot& slot = SlotAt<METH_VARARGS | METH_KEYWORDS, I>();
  const auto original = reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void*>(slot.original->ml_meth));
  if (!Capture::Wants()) return original(self, arguments, keywords);
  const Arguments all(slot, self, reinterpret_cast<PyTupleObject*>(arguments)->ob_item,
                      static_cast<size_t>(PyTuple_GET_SIZE(arguments)));
  return Capture::active()->CallApi(*slot.api, all.all(), keywords, [&] { return original(self, arguments, keywords); });
}

template <size_t I>
PyObject* VarArgs(PyObject* self, PyObject* arguments) {
  const Slot& slot = SlotAt<METH_VARARGS, I>();
  if (!Capture::Wants()) return slot.original->ml_meth(self, arguments);
  const Arguments all(slot, self, reinterpret_cast<PyTupleObject*>(arguments)->ob_item,
                      static_cast<size_t>(PyTuple_GET_SIZE(arguments)));
  return Capture::active()->CallApi(*slot.api, all.all(), nullptr, [&] { return slot.original->ml_meth(self, arguments); });
}

template <size_t I>
PyObject* NoArgs(PyObject* self, PyObject* nothing) {
  const Slot& slot = SlotAt<METH_NOARGS, I>();
  if (!Capture::Wants()) return slot.original->ml_meth(self, nothing);
  const Arguments all(slot, self, nullptr, 0);
  return Capture::active()->CallApi(*slot.api, all.all(), nullptr, [&] { return slot.original->ml_meth(self, nothing); });
}

template <size_t I>
PyObject* OneArg(PyObject* self, PyObject* argument) {
  const Slot& slot = SlotAt<METH_O, I>();
  if (!Capture::Wants()) return slot.original->ml_meth(self, argument);
  const Arguments all(slot, self, &argument, 1);
  return Capture::active()->CallApi(*slot.api, all.all(), nullptr, [&] { return slot.original->ml_meth(self, argument); });
}

template <size_t I>
PyObject* FastKeywords(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const Slot& slot = SlotAt<METH_FASTCALL | METH_KEYWORDS, I>();
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
  return Capture::active()->CallApi(*slot.api, all.all(), keywords.get(),
                                    [&] { return original(self, arguments, count, names); });
}

template <size_t... I>
constexpr auto VarArgsKeywordsTable(std::index_sequence<I...>) {
  return std::array<PyCFunctionWithKeywords, sizeof...(I)>{&VarArgsKeywords<I>...};
}
template <size_t... I>
constexpr auto VarArgsTable(std::index_sequence<I...>) {
  return std::array<PyCFunction, sizeof...(I)>{&VarArgs<I>...};
}
template <size_t... I>
constexpr auto NoArgsTable(std::index_sequence<I...>) {
  return std::array<PyCFunction, sizeof...(I)>{&NoArgs<I>...};
}
template <size_t... I>
constexpr auto OneArgTable(std::index_sequence<I...>) {
  return std::array<PyCFunction, sizeof...(I)>{&OneArg<I>...};
}
template <size_t... I>
constexpr auto FastKeywordsTable(std::index_sequence<I...>) {
  return std::array<_PyCFunctionFastWithKeywords, sizeof...(I)>{&FastKeywords<I>...};
}

constexpr auto kVarArgsKeywords = VarArgsKeywordsTable(std::make_index_sequence<1400>());
constexpr auto kVarArgs = VarArgsTable(std::make_index_sequence<200>());
constexpr auto kNoArgs = NoArgsTable(std::make_index_sequence<200>());
constexpr auto kOneArg = OneArgTable(std::make_index_sequence<200>());
constexpr auto kFastKeywords = FastKeywordsTable(std::make_index_sequence<100>());

std::deque<Slot>& Slots(int convention) {
  static auto* slots = new std::array<std::deque<Slot>, 5>;
  switch (convention) {
    case METH_VARARGS | METH_KEYWORDS:
      return (*slots)[0];
    case METH_VARARGS:
      return (*slots)[1];
    case METH_NOARGS:
      return (*slots)[2];
    case METH_O:
      return (*slots)[3];
    default:
      return (*slots)[4];
  }
}

// The trampoline of slot `index`, or null where the convention has none left.
PyCFunction Trampoline(int convention, size_t index) {
  const auto as_function = [](auto* function) { return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)); };
  switch (convention) {
    case METH_VARARGS | METH_KEYWORDS:
      return index < kVarArgsKeywords.size() ? as_function(kVarArgsKeywords[index]) : nullptr;
    case METH_VARARGS:
      return index < kVarArgs.size() ? kVarArgs[index] : nullptr;
    case METH_NOARGS:
      return index < kNoArgs.size() ? kNoArgs[index] : nullptr;
    case METH_O:
      return index < kOneArg.size() ? kOneArg[index] : nullptr;
    case METH_FASTCALL | METH_KEYWORDS:
      return index < kFastKeywords.size() ? as_function(kFastKeywords[index]) : nullptr;
    default:
      return nullptr;
  }
}

std::vector<Slot*>& Swappable() {
  static auto* slots = new std::vector<Slot*>;
  return *slots;
}

Slot* MakeSlot(PyMethodDef* original, std::shared_ptr<const Api> api) {
  const int convention = original->ml_flags & kConventionFlags;
  std::deque<Slot>& slots = Slots(convention);
  const PyCFunction trampoline = Trampoline(convention, slots.size());
  if (trampoline == nullptr) return nullptr;
  Slot& slot = slots.emplace_back();
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
  return PyCFunction_NewEx(&slot->copy, builtin->m_self, builtin->m_module);
}

void MethodSwap::Install() {
  for (Slot* slot : Swappable()) {
    if (!std::exchange(slot->is_swapped, true)) *slot->place = &slot->copy;
  }
}

void MethodSwap::Restore() {
  for (Slot* slot : Swappable()) {
    if (std::exchange(slot->is_swapped, false)) *slot->place = slot->original;
  }
}

}  // namespace msprobe::capture
