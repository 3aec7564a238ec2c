// The Python module msprobe._mindspore: capture for MindSpore. Thin: it translates. It links neither MindSpore nor
// torch.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "agent/capture/thread_state.h"
#include "agent/mindspore/mindspore_source.h"
#include "agent/python/agent.h"
#include "agent/python/config_binding.h"
#include "agent/python/control_binding.h"
#include "agent/python/mindspore/call_records.h"
#include "agent/python/mindspore/program_error.h"
#include "agent/python/mindspore/tensor_memory.h"
#include "agent/python/response_binding.h"

namespace py = pybind11;

namespace msprobe::capture {
namespace {

using core::Config;
using Call = CallRecords::Call;

ObjectReference Borrowed(const py::object& object) { return ObjectReference::Borrow(object.ptr()); }

// "Cell.net.conv1.Conv2d"
struct CellName {
  std::shared_ptr<const std::string> text;
};

// What the action gives. Nothing that it does on this thread is recorded.
py::object Unrecorded(const py::function& action) {
  int& suppressed = ThreadState::Get().suppressed;
  ++suppressed;
  const absl::Cleanup restore = [&suppressed] { --suppressed; };
  return action();
}

// The agent of a MindSpore program.
class MindsporeAgent final : public Agent {
 public:
  MindsporeAgent(const Config& config, const Program& program, std::string own_directory, py::object thread_slot,
                 py::object tensor_class, py::object dtype_class, py::object describe)
      : own_directory_(std::move(own_directory)),
        thread_slot_(std::move(thread_slot)),
        tensor_class_(std::move(tensor_class)),
        dtype_class_(std::move(dtype_class)),
        describe_(std::move(describe)) {
    Open(config, program);
  }

  bool Wants() const { return active_ && records_->Wants(); }
  bool Watching() const { return active_ && records_->watching(); }
  std::shared_ptr<Call> BeginApi(const std::shared_ptr<Api>& api, const py::tuple& arguments, const py::dict& keywords,
                                 bool with_gradients) {
    return records_->BeginApi(*api, arguments.ptr(), keywords.ptr(), with_gradients);
  }
  std::shared_ptr<Call> BeginCell(const CellName& name, const py::tuple& arguments, const py::dict& keywords) {
    return records_->BeginCell(name.text, arguments.ptr(), keywords.ptr());
  }
  void BeginPass() { records_->BeginPass(); }
  void TouchCalls(bool touches) { records_->TouchCalls(touches); }
  void ParameterGradient(const CellName& cell, const std::string& parameter, const py::object& gradient) {
    records_->ParameterGradient(cell.text, parameter, gradient.ptr());
  }
  void Save(const std::string& name, uint32_t count, uint32_t step, const py::object& value) {
    recorder()->step().Start(step);
    records_->Save(name, count, value.ptr());
    recorder()->Stop();
  }
  py::object Read(const py::object& tensor) {
    return py::reinterpret_steal<py::object>(records_->Read(tensor.ptr()).release());
  }

 protected:
  std::unique_ptr<TensorSource> MakeSource(const Config& config) override {
    return std::make_unique<MindsporeSource>(config.reuse);
  }
  void CaptureInto(std::shared_ptr<Recorder> recorder) override {
    records_ = std::make_shared<CallRecords>(
        std::move(recorder), own_directory_,
        MindsporeValues(Borrowed(tensor_class_), Borrowed(dtype_class_), Borrowed(describe_)), Borrowed(thread_slot_));
  }
  void WithTensors(std::span<const py::object> tensors,
                   absl::FunctionRef<void(std::span<const TensorRef>)> use) override {
    std::deque<TensorMemory> held;  // none of which can be moved
    std::vector<TensorRef> refs;
    for (const py::object& tensor : tensors) refs.push_back(RefTo(held.emplace_back(tensor.ptr()).tensor()));
    use(refs);
  }
  void Activate(bool active) override { active_ = active; }
  void Leak() override { new std::shared_ptr<CallRecords>(records_); }

 private:
  const std::string own_directory_;
  const py::object thread_slot_, tensor_class_, dtype_class_, describe_;
  std::shared_ptr<CallRecords> records_;
  bool active_ = false;
};

// NumbersOf a tensor, read here and now without a session.
py::object Measure(const py::object& tensor) {
  static MindsporeSource source(core::Reuse::kOff);
  static const MemoryReader memory({}, nullptr);
  const TensorMemory shown(tensor.ptr());
  return NumbersOf(source.Read(RefTo(shown.tensor()), false, memory));
}

void BindAgentClass(py::module_& module) {
  py::class_<MindsporeAgent> agent(module, "Agent", py::module_local());
  agent
      .def(py::init([](const Config& config, const std::string& run, std::optional<uint32_t> rank, uint32_t process_id,
                       const std::string& server_binary, const std::string& framework_version,
                       const std::string& program, const std::string& program_path, std::string own_directory,
                       py::object thread_slot, py::object tensor_class, py::object dtype_class, py::object describe) {
             return std::make_unique<MindsporeAgent>(
                 config, Agent::Program{run, rank, process_id, server_binary, framework_version, program, program_path},
                 std::move(own_directory), std::move(thread_slot), std::move(tensor_class), std::move(dtype_class),
                 std::move(describe));
           }),
           py::arg("config"), py::arg("run"), py::arg("rank"), py::arg("process_id"), py::arg("server_binary"),
           py::arg("framework_version"), py::arg("program"), py::arg("program_path"), py::arg("own_directory"),
           py::arg("thread_slot"), py::arg("tensor_class"), py::arg("dtype_class"), py::arg("describe"))
      .def("wants", &MindsporeAgent::Wants)
      .def("watching", &MindsporeAgent::Watching)
      .def("begin_api", &MindsporeAgent::BeginApi)
      .def("begin_cell", &MindsporeAgent::BeginCell)
      .def("begin_pass", &MindsporeAgent::BeginPass)
      .def("touch_calls", &MindsporeAgent::TouchCalls)
      .def("parameter_gradient", &MindsporeAgent::ParameterGradient)
      .def("save", &MindsporeAgent::Save, py::arg("name"), py::arg("count"), py::arg("step"), py::arg("value"))
      .def("read", &MindsporeAgent::Read);
  BindAgent(agent);
}

void BindCalls(py::module_& module) {
  module.def("unrecorded", &Unrecorded, py::arg("action"));
  module.def("measure", &Measure);
  module.def("keep_program_error", [](const py::object& error) { KeepProgramError(Borrowed(error)); });
  module.def("take_program_error", []() -> py::object {
    ObjectReference error = TakeProgramError();
    if (!error) return py::none();
    return py::reinterpret_steal<py::object>(error.release());
  });
  py::class_<Api, std::shared_ptr<Api>>(module, "Api", py::module_local()).def_readonly("name", &Api::name);
  module.def("make_api", [](std::string name) {
    auto api = std::make_shared<Api>();
    api->name = std::move(name);
    new std::shared_ptr<Api>(api);  // records of calls that are under way point at it: it is never destroyed
    return api;
  });
  py::class_<CellName>(module, "CellName", py::module_local()).def(py::init([](std::string text) {
    return CellName{std::make_shared<const std::string>(std::move(text))};
  }));
  py::class_<Call, std::shared_ptr<Call>>(module, "Call", py::module_local())
      .def(
          "end",
          [](Call& call, const py::object& result, const py::object& parameters) {
            call.End(result.ptr(), parameters.is_none() ? nullptr : parameters.ptr());
          },
          py::arg("result"), py::arg("parameters") = py::none())
      .def("raised", &Call::Raised)
      .def_property_readonly("left_out", &Call::left_out)
      .def_property_readonly("touched", &Call::touched)
      .def_property_readonly("name", &Call::name)
      .def_property_readonly("step", &Call::step)
      .def("read_gradient",
           [](Call& call, const py::object& gradient) {
             return py::reinterpret_steal<py::object>(call.ReadGradient(gradient.ptr()).release());
           })
      .def("begin_backward", [](Call& call, const py::tuple& gradients) { call.BeginBackward(gradients.ptr()); })
      .def("end_backward", [](Call& call, const py::tuple& gradients) { call.EndBackward(gradients.ptr()); });
}

}  // namespace
}  // namespace msprobe::capture

PYBIND11_MODULE(_mindspore, module) {
  using namespace msprobe::capture;  // NOLINT: one file, one module
  BindConfig(module);
  BindControl(module);
  BindResponses(module);
  BindAgentClass(module);
  BindCalls(module);
}
