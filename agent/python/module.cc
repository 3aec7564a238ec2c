// The Python module msprobe._agent: the capture and the interception of functions. Thin: it translates.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>

#include "absl/container/flat_hash_set.h"
#include "agent/core/config/config.h"
#include "agent/core/weight_digest.h"
#include "agent/python/agent.h"
#include "agent/python/call_stack.h"
#include "agent/python/capture.h"
#include "agent/python/config_binding.h"
#include "agent/python/control_binding.h"
#include "agent/python/graph_binding.h"
#include "agent/python/interceptor.h"
#include "agent/python/method_swap.h"
#include "agent/python/python_stage.h"
#include "agent/python/response_binding.h"
#include "agent/python/untraced.h"
#include "agent/torch/autograd/shared_gradients.h"
#include "agent/torch/device/device_reader.h"
#include "agent/torch/torch_source.h"

namespace py = pybind11;

namespace msprobe::capture {
namespace {

using core::Config;

core::RiskLevel RiskFrom(const std::string& name) {
  if (name == "CORE") return core::RiskLevel::kCore;
  return name == "LOW" ? core::RiskLevel::kAll : core::RiskLevel::kFocus;
}

// The agent of a torch program.
class TorchAgent final : public Agent {
 public:
  TorchAgent(const Config& config, const Program& program, std::string own_directory, py::object describe,
             py::object communication, py::object thread_slot, py::object with_tensors, py::object pass_failed)
      : own_directory_(std::move(own_directory)),
        describe_(std::move(describe)),
        communication_(std::move(communication)),
        thread_slot_(std::move(thread_slot)),
        with_tensors_(std::move(with_tensors)),
        pass_failed_(std::move(pass_failed)) {
    Open(config, program);
  }
  ~TorchAgent() override { TorchAgent::Activate(false); }

  // (request id, tokens) of the requests in the batch, in its order.
  void SetBatch(std::vector<ServedBatch::Request> requests) { capture_->SetBatch(std::move(requests)); }

  // A stage of the chain that calls pass through: stage(call) -> result; None takes the one of this name out. records:
  // as PythonStage has them.
  void SetStage(const std::string& name, py::object stage, const std::vector<std::string>& records,
                bool behind_observer) {
    std::shared_ptr<CallStage> made;
    if (!stage.is_none()) {
      made = std::make_shared<PythonStage>(recorder(), name,
                                           absl::flat_hash_set<std::string>(records.begin(), records.end()),
                                           ObjectReference::Steal(stage.release().ptr()));
    }
    capture_->stages().Set(name,
                           behind_observer ? StageChain::Place::kBehindObserver : StageChain::Place::kBeforeObserver,
                           std::move(made));
  }

  void AddModule(const py::object& module, const std::string& name, bool is_root) {
    capture_->AddModule(module.ptr(), name, is_root);
  }
  void Expect(const std::vector<py::object>& parameters) {
    std::vector<TensorRef> expected;
    for (const py::object& parameter : parameters) {
      if (THPVariable_Check(parameter.ptr())) expected.push_back(RefTo(THPVariable_Unpack(parameter.ptr())));
    }
    recorder()->source().Expect(expected);
  }
  void RemoveModule(const py::object& module) { capture_->RemoveModule(module.ptr()); }
  void Save(const std::string& name, uint32_t count, uint32_t step, const py::object& value) {
    recorder()->step().Start(step);
    capture_->Save(name, count, value.ptr());
    recorder()->Stop();
  }
  py::object Read(const py::object& tensor) {
    return py::reinterpret_steal<py::object>(capture_->Read(tensor.ptr()).release());
  }

 protected:
  std::unique_ptr<TensorSource> MakeSource(const Config& config) override {
    return std::make_unique<TorchSource>(config.reuse);
  }
  void CaptureInto(std::shared_ptr<Recorder> recorder) override {
    if (capture_ != nullptr) retired_.push_back(std::move(capture_));
    const auto borrow = [](const py::object& callback) { return ObjectReference::Borrow(callback.ptr()); };
    capture_ =
        std::make_unique<Capture>(std::move(recorder), own_directory_,
                                  Capture::Callbacks{borrow(describe_), borrow(communication_), borrow(thread_slot_),
                                                     borrow(with_tensors_), borrow(pass_failed_)});
    // They end outside of the list: what they hold may run Python code.
    const auto idle = std::partition(retired_.begin(), retired_.end(), [](const auto& each) { return !each->idle(); });
    const std::vector<std::unique_ptr<Capture>> ended(std::make_move_iterator(idle),
                                                      std::make_move_iterator(retired_.end()));
    retired_.erase(idle, retired_.end());
  }
  void WithTensors(std::span<const py::object> tensors,
                   absl::FunctionRef<void(std::span<const TensorRef>)> use) override {
    std::vector<at::Tensor> held;
    std::vector<TensorRef> refs;
    held.reserve(tensors.size());
    for (const py::object& tensor : tensors) refs.push_back(RefTo(held.emplace_back(THPVariable_Unpack(tensor.ptr()))));
    use(refs);
  }
  void Activate(bool active) override {
    if (active) {
      Capture::SetActive(capture_.get());
    } else if (Capture::active() == capture_.get()) {
      Capture::SetActive(nullptr);
    }
  }
  void ForgetStep() override { capture_->ForgetWaits(); }
  void Closed() override { DeviceReader::StopAll(); }
  void Leak() override {
    Capture::SetActive(nullptr);
    static_cast<void>(capture_.release());
    for (std::unique_ptr<Capture>& retired : retired_) static_cast<void>(retired.release());
  }

 private:
  const std::string own_directory_;
  const py::object describe_;
  const py::object communication_;
  const py::object thread_slot_;
  const py::object with_tensors_;
  const py::object pass_failed_;
  std::unique_ptr<Capture> capture_;
  std::vector<std::unique_ptr<Capture>> retired_;  // calls of other threads may still be inside
};

// NumbersOf a tensor in host memory, read here and now without a session.
py::object Measure(const py::object& tensor) {
  static const TensorReader reader(core::Reuse::kOff);
  static const MemoryReader memory({}, nullptr);
  if (!THPVariable_Check(tensor.ptr())) throw py::type_error("measure takes a tensor");
  return NumbersOf(reader.Read(THPVariable_Unpack(tensor.ptr()), false, memory));
}

// One int64 a row of `words`, int8, int16 or int32 in host memory and row-major: the sum of each word times the factor
// of its column (core/weight_digest.h).
at::Tensor SumRows(const py::object& words, const py::object& factors) {
  if (!THPVariable_Check(words.ptr()) || !THPVariable_Check(factors.ptr())) {
    throw py::type_error("sum_rows takes two tensors");
  }
  const at::Tensor& from = THPVariable_Unpack(words.ptr());
  const at::Tensor& by = THPVariable_Unpack(factors.ptr());
  if (!from.device().is_cpu() || !by.device().is_cpu() || from.dim() != 2 || by.dim() != 1 || !from.is_contiguous() ||
      !by.is_contiguous() || by.scalar_type() != at::kLong || from.size(1) != by.size(0) || from.element_size() > 4) {
    throw py::value_error("sum_rows takes rows of words of at most four bytes, and an int64 factor for each column");
  }
  const auto rows = from.size(0), columns = from.size(1);
  at::Tensor sums = at::empty({rows}, by.options());
  const char* const first = static_cast<const char*>(from.const_data_ptr());
  const auto* const column_factors = static_cast<const uint64_t*>(by.const_data_ptr());
  auto* const out = static_cast<uint64_t*>(sums.mutable_data_ptr());
  const size_t word = from.element_size();
  const py::gil_scoped_release unlocked;
  for (int64_t row = 0; row < rows; ++row) {
    out[row] = core::SumOfWords(first + row * columns * word, word, columns, column_factors);
  }
  return sums;
}

std::shared_ptr<const Api> MakeApi(const std::string& name, const std::string& risk, bool is_dropout,
                                   bool is_distributed, std::vector<int> ignored_inputs,
                                   std::vector<int> ignored_outputs, std::string ignored_keyword) {
  auto api = std::make_shared<Api>();
  api->name = name;
  api->risk = RiskFrom(risk);
  api->is_dropout = is_dropout;
  api->is_distributed = is_distributed;
  api->ignored_inputs = std::move(ignored_inputs);
  api->ignored_outputs = std::move(ignored_outputs);
  api->ignored_keyword = std::move(ignored_keyword);
  // Hooks in autograd's graph point at it: an Api is never destroyed.
  new std::shared_ptr<const Api>(api);
  return api;
}

py::object Intercept(const py::object& original, const std::string& interception, const std::shared_ptr<const Api>& api,
                     const std::string& phase, const py::object& operator_api) {
  Interception kind = Interception::kApi;
  if (interception == "module") kind = Interception::kModule;
  if (interception == "phase") kind = Interception::kPhase;
  if (interception == "suppress") kind = Interception::kSuppress;
  if (interception == "wait") kind = Interception::kWait;
  if (interception == "operator") kind = Interception::kOperator;
  auto describe = [operator_api](PyObject* op) -> std::shared_ptr<const Api> {
    const Untraced untraced;
    try {
      return operator_api(py::reinterpret_borrow<py::object>(op)).cast<std::shared_ptr<Api>>();
    } catch (const std::exception&) {
      return nullptr;  // an operator without the names that torch gives them is not recorded
    }
  };
  PyObject* made = MakeInterceptor(original.ptr(), kind, api, phase, describe);
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

}  // namespace
}  // namespace msprobe::capture

PYBIND11_MODULE(_agent, module) {
  using namespace msprobe::capture;  // NOLINT: one file, one module
  module.attr("TORCH_VERSION") = MSPROBE_TORCH_VERSION;
  Untraced::Prepare();

  BindConfig(module);
  BindControl(module);
  BindResponses(module);
  py::class_<TorchAgent> agent(module, "Agent", py::module_local());
  agent
      .def(py::init([](const Config& config, const std::string& run, std::optional<uint32_t> rank, uint32_t process_id,
                       const std::string& server_binary, const std::string& framework_version,
                       const std::string& program, const std::string& program_path, std::string own_directory,
                       py::object describe, py::object communication, py::object thread_slot, py::object with_tensors,
                       py::object pass_failed) {
             return std::make_unique<TorchAgent>(
                 config, Agent::Program{run, rank, process_id, server_binary, framework_version, program, program_path},
                 std::move(own_directory), std::move(describe), std::move(communication), std::move(thread_slot),
                 std::move(with_tensors), std::move(pass_failed));
           }),
           py::arg("config"), py::arg("run"), py::arg("rank"), py::arg("process_id"), py::arg("server_binary"),
           py::arg("framework_version"), py::arg("program"), py::arg("program_path"), py::arg("own_directory"),
           py::arg("describe"), py::arg("communication"), py::arg("thread_slot"), py::arg("with_tensors"),
           py::arg("pass_failed"))
      .def("set_batch", &TorchAgent::SetBatch)
      .def("set_stage", &TorchAgent::SetStage, py::arg("name"), py::arg("stage"),
           py::arg("records") = std::vector<std::string>(), py::arg("behind_observer") = false)
      .def("add_module", &TorchAgent::AddModule, py::arg("module"), py::arg("name"), py::arg("is_root"))
      .def("expect", &TorchAgent::Expect, py::arg("parameters"))
      .def("remove_module", &TorchAgent::RemoveModule)
      .def("save", &TorchAgent::Save, py::arg("name"), py::arg("count"), py::arg("step"), py::arg("value"))
      .def("read", &TorchAgent::Read);
  BindAgent(agent);

  py::class_<Api, std::shared_ptr<Api>>(module, "Api", py::module_local()).def_readonly("name", &Api::name);
  module.def(
      "make_api",
      [](const std::string& name, const std::string& risk, bool is_dropout, bool is_distributed,
         std::vector<int> ignored_inputs, std::vector<int> ignored_outputs, std::string ignored_keyword) {
        return std::const_pointer_cast<Api>(MakeApi(name, risk, is_dropout, is_distributed, std::move(ignored_inputs),
                                                    std::move(ignored_outputs), std::move(ignored_keyword)));
      },
      py::arg("name"), py::arg("risk"), py::arg("is_dropout") = false, py::arg("is_distributed") = false,
      py::arg("ignored_inputs") = std::vector<int>(), py::arg("ignored_outputs") = std::vector<int>(),
      py::arg("ignored_keyword") = "");
  module.def("measure", &Measure);
  module.def("sum_rows", [](const py::object& words, const py::object& factors) {
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(SumRows(words, factors)));
  });
  module.def("share_gradients", [](bool shared) { gradients_are_shared = shared; });
  module.def("prepare_method", [](const py::object& function, std::shared_ptr<Api> api) {
    return MethodSwap::Prepare(function.ptr(), std::move(api));
  });
  module.def("stand_in", [](const py::object& function, std::shared_ptr<Api> api) -> py::object {
    PyObject* made = MethodSwap::StandIn(function.ptr(), std::move(api));
    if (made == nullptr) {
      PyErr_Clear();
      return py::none();
    }
    return py::reinterpret_steal<py::object>(made);
  });
  module.def("plain_method", [](const py::object& descriptor) -> py::object {
    PyObject* made = MethodSwap::PlainMethod(descriptor.ptr());
    if (made == nullptr) {
      PyErr_Clear();
      return py::none();
    }
    return py::reinterpret_steal<py::object>(made);
  });
  module.def("install_methods", &MethodSwap::Install);
  module.def("restore_methods", &MethodSwap::Restore);
  module.def(
      "intercept",
      [](const py::object& original, const std::string& kind, const std::shared_ptr<Api>& api, const std::string& phase,
         const py::object& operator_api) { return Intercept(original, kind, api, phase, operator_api); },
      py::arg("original"), py::arg("kind"), py::arg("api") = nullptr, py::arg("phase") = "",
      py::arg("operator_api") = py::none());
  module.def("applied", [](const py::object& callable) -> py::object {
    PyObject* applied = MakeApplied(callable.ptr());
    if (applied == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(applied);
  });
  BindGraphs(module);
  BindStages(module);
  module.def("hide_code", [](const py::object& code) { CallStack::HideCode(code.ptr()); });
}
