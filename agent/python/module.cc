// The Python module msprobe._agent: the capture and the interception of functions. Thin: it translates.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "agent/capture/compare/bench_dump.h"
#include "agent/core/config/config.h"
#include "agent/core/session.h"
#include "agent/python/call_stack.h"
#include "agent/python/capture.h"
#include "agent/python/config_binding.h"
#include "agent/python/graph_binding.h"
#include "agent/python/interceptor.h"
#include "agent/python/method_swap.h"
#include "agent/python/python_stage.h"
#include "agent/python/untraced.h"
#include "agent/torch/device/device_reader.h"
#include "agent/torch/torch_source.h"

namespace py = pybind11;

namespace msprobe::capture {
namespace {

using core::Config;

[[noreturn]] void Refuse(const absl::Status& status) { throw py::value_error(std::string(status.message())); }

core::RiskLevel RiskFrom(const std::string& name) {
  if (name == "CORE") return core::RiskLevel::kCore;
  return name == "LOW" ? core::RiskLevel::kAll : core::RiskLevel::kFocus;
}

// Whether Ctrl-C waits for this thread to return to Python, where it is handled: not here, and it is not forgotten.
bool InterruptWaits() {
  if (getpid() != gettid()) return false;  // signals are the main thread's
  std::optional<py::gil_scoped_acquire> held;
  if (PyGILState_Check() == 0) held.emplace();
  if (PyOS_InterruptOccurred() == 0) return false;
  try {
    const py::object set_wakeup = py::module_::import("signal").attr("set_wakeup_fd");
    const py::object wakeup = set_wakeup(-1);  // that was written to when it came
    PyErr_SetInterrupt();
    set_wakeup(wakeup);
  } catch (const std::exception&) {
    PyErr_SetInterrupt();
  }
  return true;
}

// One debugger's session and what captures into it. Every method is called with the GIL; those that may wait let it go.
class Agent {
 public:
  Agent(const Config& config, const std::string& run, std::optional<uint32_t> rank, uint32_t process_id,
        const std::string& server_binary, const std::string& framework_version, const std::string& program,
        std::string own_directory, py::object describe, py::object thread_slot, py::object with_tensors,
        py::object pass_failed)
      : own_directory_(std::move(own_directory)),
        describe_(std::move(describe)),
        thread_slot_(std::move(thread_slot)),
        with_tensors_(std::move(with_tensors)),
        pass_failed_(std::move(pass_failed)) {
    core::SessionOptions options;
    static_cast<core::SessionConfig&>(options) = config.session;
    options.run = run;
    options.rank = rank ? core::RankLabel{true, *rank} : core::RankLabel{false, process_id};
    auto source = std::make_unique<TorchSource>(config.reuse);
    options.settings = core::SettingsOf(config, source->framework());
    options.server_binary = server_binary;
    options.framework_version = framework_version;
    options.program = program;
    options.interrupted = &InterruptWaits;
    absl::StatusOr<std::unique_ptr<core::Session>> session = core::Session::Open(std::move(options));
    if (!session.ok()) Refuse(session.status());
    session_ = *std::move(session);
    MakeCapture(config, std::move(source));
  }

  ~Agent() {
    if (Capture::active() == capture_.get()) Capture::SetActive(nullptr);
  }

  // tokens: (first, last) forward passes of the root.
  void Start(uint32_t step, std::optional<std::pair<uint32_t, uint32_t>> tokens) {
    std::optional<TokenWindow::Range> range;
    if (tokens) range = TokenWindow::Range{tokens->first, tokens->second};
    Capture::SetActive(capture_.get());
    recorder_->step().Start(step, range);
  }

  void GoOn(uint32_t step) {
    Capture::SetActive(capture_.get());
    recorder_->step().GoOn(step);
  }

  // Captures by another configuration from now on; between two steps. The session stays.
  void Reconfigure(const Config& config) {
    recorder_->Stop();
    if (Capture::active() == capture_.get()) Capture::SetActive(nullptr);
    auto source = std::make_unique<TorchSource>(config.reuse);
    session_->SetSettings(core::SettingsOf(config, source->framework()));
    retired_.push_back(std::move(capture_));
    MakeCapture(config, std::move(source));
  }

  // rows: (tokens of the batch, first, end) of the request whose rows are read; none: all are.
  void SetRequestRows(std::optional<std::tuple<int64_t, int64_t, int64_t>> rows) {
    if (rows) {
      recorder_->memory().rows().Select(std::get<0>(*rows), std::get<1>(*rows), std::get<2>(*rows));
    } else {
      recorder_->memory().rows().Clear();
    }
  }

  // (request id, tokens) of the requests in the batch, in its order.
  void SetBatch(std::vector<ServedBatch::Request> requests) { capture_->SetBatch(std::move(requests)); }

  // The dump.json that this step is compared with; empty: none.
  void SetBench(const std::string& dump_json) {
    if (recorder_->diff_check() == nullptr) return;
    recorder_->diff_check()->SetBench(nullptr);
    if (dump_json.empty()) return;
    absl::StatusOr<capture::BenchDump> bench = [&] {
      const py::gil_scoped_release released;
      return capture::BenchDump::Load(dump_json);
    }();
    if (!bench.ok()) Refuse(bench.status());
    recorder_->diff_check()->SetBench(std::make_shared<const capture::BenchDump>(*std::move(bench)));
  }
  bool DiffCheckDone() const { return recorder_->diff_check() != nullptr && recorder_->diff_check()->done(); }

  // A stage of the chain that calls pass through: stage(call) -> result; None takes the one of this name out. records:
  // full names of the records that it touches; empty: all.
  void SetStage(const std::string& name, py::object stage, const std::vector<std::string>& records,
                bool behind_observer) {
    std::shared_ptr<CallStage> made;
    if (!stage.is_none()) {
      made = std::make_shared<PythonStage>(recorder_, name,
                                           absl::flat_hash_set<std::string>(records.begin(), records.end()),
                                           ObjectReference::Steal(stage.release().ptr()));
    }
    capture_->stages().Set(name,
                           behind_observer ? StageChain::Place::kBehindObserver : StageChain::Place::kBeforeObserver,
                           std::move(made));
  }
  void Stop() { recorder_->Stop(); }
  // Whether the step had forward passes of the root, calls of what is captured, and records.
  std::tuple<bool, bool, bool> EndStep(uint32_t step, bool keep) {
    capture_->ForgetWaits();
    const Recorder::StepContents had = recorder_->EndStep(step, keep);
    return {had.passes, had.calls, had.records};
  }
  void ExportOpenStep(uint32_t step) { session_->ExportOpenStep(step); }
  void SetRank(uint32_t rank) { session_->SetRank({true, rank}); }

  void AddModule(const py::object& module, const std::string& name, bool is_root) {
    capture_->AddModule(module.ptr(), name, is_root);
  }
  void RemoveModule(const py::object& module) { capture_->RemoveModule(module.ptr()); }
  void SetPhase(const std::string& phase) {
    if (recorder_->step().capturing()) recorder_->opener().SetPhase(phase);
  }
  void Save(const std::string& name, uint32_t count, uint32_t step, const py::object& value) {
    recorder_->step().Start(step);
    capture_->Save(name, count, value.ptr());
    recorder_->Stop();
  }
  py::object Read(const py::object& tensor) {
    return py::reinterpret_steal<py::object>(capture_->Read(tensor.ptr()).release());
  }

  std::shared_ptr<Recorder> recorder() const { return recorder_; }

  // Empty when done; else what is missing. Raises what a handler of a signal raises.
  std::string Wait(double seconds) {
    std::optional<py::error_already_set> raised;
    absl::Status status;
    {
      const py::gil_scoped_release released;
      status = session_->Wait(absl::Seconds(seconds), [&](std::string_view) {
        const py::gil_scoped_acquire held;
        if (PyErr_CheckSignals() != 0) raised.emplace();
        return !raised.has_value();
      });
    }
    if (raised.has_value()) throw py::error_already_set(*std::move(raised));
    return std::string(status.message());
  }
  // goes_on(missing): asked now and then, whether to wait on.
  std::string Close(bool clean, double seconds, const py::function& goes_on) {
    recorder_->Stop();
    const py::gil_scoped_release released;
    const absl::Status status = session_->Close(clean, absl::Seconds(seconds), [&](std::string_view missing) {
      const py::gil_scoped_acquire held;
      try {
        return goes_on(std::string(missing)).cast<bool>();
      } catch (const std::exception&) {  // whatever it raises, it was to end this
        return false;
      }
    });
    DeviceReader::StopAll();
    return std::string(status.message());
  }

  // In a forked child: nothing of the parent's is used or destroyed again.
  void Abandon() {
    recorder_->Stop();
    Capture::SetActive(nullptr);
    session_->Abandon();
    new std::shared_ptr<core::Session>(session_);  // kept for ever: destructors would touch the parent's threads
    new std::shared_ptr<Recorder>(recorder_);
    static_cast<void>(capture_.release());
    for (std::unique_ptr<Capture>& retired : retired_) static_cast<void>(retired.release());
  }

  py::dict Counters() const {
    const core::SessionCounters counters = session_->counters();
    py::dict shown;
    shown["fragments_emitted"] = counters.fragments_emitted;
    shown["fragments_dropped"] = counters.fragments_dropped;
    shown["payloads_dropped"] = counters.payloads_dropped;
    shown["faults"] = counters.faults;
    shown["batches_sent"] = counters.batches_sent;
    shown["received_through"] = counters.received_through;
    shown["durable_through"] = counters.durable_through;
    shown["bytes_sent"] = counters.bytes_sent;
    shown["bytes_spooled"] = counters.bytes_spooled;
    shown["connected"] = counters.connected;
    shown["dump_full"] = counters.dump_full;
    const TensorSource::Counts remembered = recorder_->source().counts();
    shown["statistics_recalled"] = remembered.recalled;
    shown["statistics_wrong"] = remembered.wrong;
    shown["tensor_bytes_read"] = recorder_->memory().bytes_read();
    return shown;
  }

 private:
  void MakeCapture(const Config& config, std::unique_ptr<TensorSource> source) {
    recorder_ = std::make_shared<Recorder>(config, session_, std::move(source));
    const auto borrow = [](const py::object& callback) { return ObjectReference::Borrow(callback.ptr()); };
    capture_ = std::make_unique<Capture>(
        recorder_, own_directory_,
        Capture::Callbacks{borrow(describe_), borrow(thread_slot_), borrow(with_tensors_), borrow(pass_failed_)});
  }

  const std::string own_directory_;
  const py::object describe_;
  const py::object thread_slot_;
  const py::object with_tensors_;
  const py::object pass_failed_;
  std::shared_ptr<core::Session> session_;
  std::shared_ptr<Recorder> recorder_;
  std::unique_ptr<Capture> capture_;
  std::vector<std::unique_ptr<Capture>> retired_;  // calls of other threads may still be inside
};

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
  py::class_<Agent>(module, "Agent")
      .def(py::init<const Config&, const std::string&, std::optional<uint32_t>, uint32_t, const std::string&,
                    const std::string&, const std::string&, std::string, py::object, py::object, py::object,
                    py::object>(),
           py::arg("config"), py::arg("run"), py::arg("rank"), py::arg("process_id"), py::arg("server_binary"),
           py::arg("framework_version"), py::arg("program"), py::arg("own_directory"), py::arg("describe"),
           py::arg("thread_slot"), py::arg("with_tensors"), py::arg("pass_failed"))
      .def("start", &Agent::Start, py::arg("step"), py::arg("tokens") = py::none())
      .def("go_on", &Agent::GoOn, py::arg("step"))
      .def("reconfigure", &Agent::Reconfigure)
      .def("set_request_rows", &Agent::SetRequestRows)
      .def("set_batch", &Agent::SetBatch)
      .def("set_bench", &Agent::SetBench)
      .def("diff_check_done", &Agent::DiffCheckDone)
      .def("set_stage", &Agent::SetStage, py::arg("name"), py::arg("stage"),
           py::arg("records") = std::vector<std::string>(), py::arg("behind_observer") = false)
      .def("stop", &Agent::Stop)
      .def("end_step", &Agent::EndStep, py::arg("step"), py::arg("keep"))
      .def("export_open_step", &Agent::ExportOpenStep)
      .def("set_rank", &Agent::SetRank)
      .def("add_module", &Agent::AddModule, py::arg("module"), py::arg("name"), py::arg("is_root"))
      .def("remove_module", &Agent::RemoveModule)
      .def("set_phase", &Agent::SetPhase)
      .def("save", &Agent::Save, py::arg("name"), py::arg("count"), py::arg("step"), py::arg("value"))
      .def("read", &Agent::Read)
      .def("wait", &Agent::Wait)
      .def("close", &Agent::Close, py::arg("clean"), py::arg("seconds"), py::arg("goes_on"))
      .def("abandon", &Agent::Abandon)
      .def_property_readonly("recorder", &Agent::recorder)
      .def("counters", &Agent::Counters);

  py::class_<Api, std::shared_ptr<Api>>(module, "Api").def_readonly("name", &Api::name);
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
      [](const py::object& original, const std::string& kind, std::shared_ptr<Api> api, const std::string& phase,
         const py::object& operator_api) { return Intercept(original, kind, api, phase, operator_api); },
      py::arg("original"), py::arg("kind"), py::arg("api") = nullptr, py::arg("phase") = "",
      py::arg("operator_api") = py::none());
  BindGraphs(module);
  BindStages(module);
  module.def("hide_code", [](const py::object& code) { CallStack::HideCode(code.ptr()); });
}
