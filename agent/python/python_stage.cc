#include "agent/python/python_stage.h"

#include <pybind11/stl.h>

#include <stdexcept>
#include <utility>

#include "agent/capture/thread_state.h"
#include "agent/core/str_cat.h"
#include "agent/python/untraced.h"

namespace py = pybind11;

namespace msprobe::capture {
namespace {

// What a stage in Python sees of a call. Used on the call's own thread, and until the call has ended.
class StagedCall {
 public:
  StagedCall(const OpenRecord& record, PyObject* arguments, PyObject* keywords, RestOfCall rest, Untraced& untraced)
      : record_(&record), arguments_(arguments), keywords_(keywords), rest_(rest), untraced_(&untraced) {}

  const OpenRecord& record() const {
    if (record_ == nullptr) throw std::runtime_error("the call has ended");
    return *record_;
  }
  py::object arguments() const {
    record();
    return py::reinterpret_borrow<py::object>(arguments_);
  }
  py::object keywords() const {
    record();
    if (keywords_ == nullptr) return py::dict();
    return py::reinterpret_borrow<py::object>(keywords_);
  }

  // Runs the rest of the call, which is recorded and traced as if no stage stood before it.
  py::object Call(const py::args& arguments, const py::kwargs& keywords) {
    record();
    ThreadState& thread = ThreadState::Get();
    --thread.suppressed;
    PyObject* result = nullptr;
    {
      const Untraced::Lifted traced(*untraced_);
      result = rest_(arguments.ptr(), keywords.empty() ? nullptr : keywords.ptr());
    }
    ++thread.suppressed;
    raised_ = result == nullptr;
    if (raised_) throw py::error_already_set();
    result_ = py::reinterpret_steal<py::object>(result);
    return result_;
  }

  void End() {
    record_ = nullptr;
    arguments_ = keywords_ = nullptr;
  }
  // Of the last Call.
  bool raised() const { return raised_; }
  py::object TakeResult() { return std::exchange(result_, py::object()); }

 private:
  const OpenRecord* record_;  // null: the call has ended
  PyObject* arguments_;
  PyObject* keywords_;
  const RestOfCall rest_;
  Untraced* const untraced_;
  bool raised_ = false;
  py::object result_;
};

// The error that is set, in a line; clears it.
std::string TakeError() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const ObjectReference held[] = {ObjectReference::Steal(type), ObjectReference::Steal(value),
                                  ObjectReference::Steal(traceback)};
  const ObjectReference text = ObjectReference::Steal(value == nullptr ? nullptr : PyObject_Str(value));
  const char* shown = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return shown == nullptr ? "an error" : shown;
}

const char* KindOf(core::RecordKind kind) { return kind == core::RecordKind::kModule ? "module" : "api"; }

}  // namespace

PythonStage::PythonStage(std::shared_ptr<Recorder> recorder, std::string name, absl::flat_hash_set<std::string> records,
                         ObjectReference stage)
    : recorder_(std::move(recorder)), name_(std::move(name)), records_(std::move(records)), stage_(std::move(stage)) {}

bool PythonStage::Touches(const OpenRecord& record) const {
  if (records_.empty()) return record.selected;
  return records_.contains(*record.name) || records_.contains(record.FullName());
}

PyObject* PythonStage::Run(const OpenRecord& record, PyObject* arguments, PyObject* keywords, RestOfCall rest) {
  ObjectReference result;
  py::object last;
  bool raised = false;
  {
    ThreadState& thread = ThreadState::Get();
    Untraced untraced;
    const auto call = std::make_shared<StagedCall>(record, arguments, keywords, rest, untraced);
    const ObjectReference shown = ObjectReference::Steal(py::cast(call).release().ptr());
    ++thread.suppressed;
    result = ObjectReference::Steal(PyObject_CallOneArg(stage_.get(), shown.get()));
    --thread.suppressed;
    raised = call->raised();
    last = call->TakeResult();
    call->End();
  }
  if (result) return result.release();
  if (raised || PyErr_ExceptionMatches(PyExc_Exception) == 0) return nullptr;
  recorder_->faults().Report(record, core::Cat("stage ", name_, ": ", TakeError()));
  return last ? last.release().ptr() : rest(arguments, keywords);
}

void BindStages(py::module_& module) {
  py::class_<StagedCall, std::shared_ptr<StagedCall>>(module, "StagedCall")
      .def_property_readonly("name", [](const StagedCall& call) { return call.record().FullName(); })
      .def_property_readonly("kind", [](const StagedCall& call) { return KindOf(call.record().kind); })
      .def_property_readonly("direction",
                             [](const StagedCall& call) {
                               return call.record().direction == core::Direction::kForward ? "forward" : "backward";
                             })
      .def_property_readonly("step", [](const StagedCall& call) { return call.record().step; })
      .def_property_readonly("token", [](const StagedCall& call) { return call.record().token; })
      .def_property_readonly("args", &StagedCall::arguments)
      .def_property_readonly("kwargs", &StagedCall::keywords)
      .def("__call__", &StagedCall::Call);
}

}  // namespace msprobe::capture
