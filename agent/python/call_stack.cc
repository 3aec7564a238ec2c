#include "agent/python/call_stack.h"

#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/match.h"
#include "agent/core/str_cat.h"
#include "agent/python/object_text.h"
#include "agent/python/python_versions.h"

namespace msprobe::capture {
namespace {

// The line of a source that is no file (a notebook cell, python -c), as linecache has it.
std::string CachedSource(const std::string& path, int line) {
  const ObjectReference linecache = ObjectReference::Steal(PyImport_ImportModule("linecache"));
  const ObjectReference text =
      linecache ? ObjectReference::Steal(PyObject_CallMethod(linecache.get(), "getline", "si", path.c_str(), line))
                : ObjectReference();
  if (!text) {
    PyErr_Clear();
    return {};
  }
  return std::string(Utf8(text.get()));
}

int LastLine(PyObject* code) {
  const ObjectReference lines = ObjectReference::Steal(PyObject_CallMethod(code, "co_lines", nullptr));
  int last = reinterpret_cast<PyCodeObject*>(code)->co_firstlineno;
  if (lines) {
    while (const ObjectReference row = ObjectReference::Steal(PyIter_Next(lines.get()))) {
      PyObject* line = PyTuple_GetItem(row.get(), 2);
      if (line != nullptr && line != Py_None) last = std::max(last, static_cast<int>(PyLong_AsLong(line)));
    }
  }
  PyErr_Clear();
  return last;
}

// What stands in a deep stack for the frames between. It has no line: then its path is shown alone.
core::Frame LeftOut() {
  core::Frame frame;
  frame.path = core::Cat("frames are left out here; of a stack, the ", CallStack::kInnermost, " innermost and the ",
                         CallStack::kOutermost, " outermost are kept");
  frame.source = frame.path;
  return frame;
}

}  // namespace

CallStack::CallStack(std::shared_ptr<core::Session> session, std::string own_directory)
    : session_(std::move(session)), own_directory_(std::move(own_directory)) {}

absl::flat_hash_set<PyObject*>& CallStack::Hidden() {
  static auto* hidden = new absl::flat_hash_set<PyObject*>;
  return *hidden;
}

void CallStack::HideCode(PyObject* code) {
  Py_INCREF(code);  // for ever: the set knows it by address
  Hidden().insert(code);
}

core::Frame CallStack::Describe(PyObject* code, int line) const {
  const auto* object = reinterpret_cast<PyCodeObject*>(code);
  core::Frame frame;
  frame.path = Utf8(object->co_filename);
  frame.line = static_cast<uint32_t>(std::max(line, 0));
  frame.function = Utf8(object->co_name);
  if (absl::StartsWith(frame.path, "<")) frame.source = CachedSource(frame.path, line);
  return frame;
}

template <typename Visit>
void CallStack::ForEachFrame(const Visit& visit) {
  ObjectReference frame = ObjectReference::Borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    auto* object = reinterpret_cast<PyFrameObject*>(frame.get());
    auto* code = reinterpret_cast<PyObject*>(PyFrame_GetCode(object));
    Py_DECREF(code);  // the frame holds it
    if (!Hidden().contains(code)) visit(object, code);
    frame = ObjectReference::Steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(object)));
  }
}

core::StackId CallStack::Take(PyObject* entered) {
  places_.clear();
  if (entered != nullptr) places_.push_back({entered, -1});
  ForEachFrame([&](PyFrameObject* frame, PyObject* code) { places_.push_back({code, LastInstruction(frame)}); });
  const size_t depth = places_.size();
  const bool is_deep = depth > kInnermost + kOutermost;
  if (is_deep) {
    places_[kInnermost] = {nullptr, 0};
    places_.erase(places_.begin() + kInnermost + 1, places_.end() - kOutermost);
  }
  const core::PayloadDigest hash = core::PayloadHash(std::as_bytes(std::span(places_)));
  const auto found = known_.find(hash);
  if (found != known_.end()) return found->second;
  if (!has_room_) return 0;

  std::vector<core::Frame> described;
  size_t at = 0;
  if (entered != nullptr) {
    described.push_back(Describe(entered, LastLine(entered)));
    ++at;
  }
  ForEachFrame([&](PyFrameObject* frame, PyObject* code) {
    const size_t place = at++;
    if (is_deep && place == kInnermost) described.push_back(LeftOut());
    if (is_deep && place >= kInnermost && place + kOutermost < depth) return;
    core::Frame shown = Describe(code, PyFrame_GetLineNumber(frame));
    if (!absl::StartsWith(shown.path, own_directory_)) described.push_back(std::move(shown));
  });
  const core::StackId id = session_->DefineStack(described);
  has_room_ = id != 0;
  if (!has_room_) return 0;
  for (const Place& place : places_) kept_.try_emplace(place.code, ObjectReference::Borrow(place.code));
  known_.emplace(hash, id);
  return id;
}

}  // namespace msprobe::capture
