#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "agent/capture/recorder.h"
#include "agent/capture/response_log.h"
#include "agent/capture/steps/token_window.h"
#include "agent/core/config/config.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// One debugger's session and the recorder into it, as Python sees them, whatever the framework. Each framework's module
// derives its own, which holds what turns calls into records.
//
// Every method is called with the GIL; those that may wait let it go.
class Agent {
 public:
  // What the process tells of itself.
  struct Program {
    std::string run;
    std::optional<uint32_t> rank;
    uint32_t process_id = 0;
    std::string server_binary;
    std::string framework_version;
    std::string program;
    std::string program_path;
  };

  virtual ~Agent() = default;
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // tokens: (first, last) forward passes of the root.
  void Start(uint32_t step, std::optional<std::pair<uint32_t, uint32_t>> tokens);
  void GoOn(uint32_t step);
  void Stop() { recorder_->Stop(); }
  // Whether the step had forward passes of the root, calls of what is captured, and records.
  std::tuple<bool, bool, bool> EndStep(uint32_t step, bool keep);
  // Captures by another configuration from now on; between two steps. The session stays. replay: the next step is a
  // pass of one that runs twice, and has checksums alone.
  void Reconfigure(const core::Config& config, bool replay);

  // Full names of cells that MindSpore compiles; until the next Reconfigure.
  void SetCompiledCells(std::vector<std::string> cells);

  // rows: (tokens of the batch, first, end) of the request whose rows are read; none: all are.
  void SetRequestRows(std::optional<std::tuple<int64_t, int64_t, int64_t>> rows);
  // The dump.json that this step is compared with; empty: none.
  void SetBench(const std::string& dump_json);
  // Logs scalars of `step`, whether or not it is captured: names, and for each a number or a tensor of one element.
  void Log(uint32_t step, const std::vector<std::pair<std::string, pybind11::object>>& values);
  // Tokens of a reply of a language model that were sampled in `step`, and for each the log-probabilities of its
  // candidates, the best first; empty: they are not known.
  void LogTokens(uint32_t step, const std::string& request, const std::vector<int64_t>& tokens,
                 const std::vector<std::vector<double>>& logprobs);
  void EndResponse(uint32_t step, const std::string& request) { responses_->End(step, request); }
  // Statistics of a tensor as it is now, kept for SendSeries under this name; or a number.
  void ReadSeries(const std::string& name, const pybind11::object& tensor);
  // Around the update of a parameter: TensorSeries::BeforeUpdate.
  void BeforeUpdate(const std::string& name, const pybind11::object& tensor);
  void AfterUpdate(const std::string& name, const std::string& shard, const pybind11::object& tensor);
  void AddSeries(const std::string& name, double value) { recorder_->series().Add(name, value); }
  void SendSeries(uint32_t step) { recorder_->series().Send(step); }
  void ForgetSeries() { recorder_->series().Forget(); }
  // Task grad_probe: names of parameters and their gradients.
  void LookAtGradients(uint32_t step, const std::vector<std::pair<std::string, pybind11::object>>& gradients);
  bool DiffCheckDone() const { return recorder_->diff_check() != nullptr && recorder_->diff_check()->done(); }
  void ExportOpenStep(uint32_t step) { session_->ExportOpenStep(step); }
  void SetRank(uint32_t rank) { session_->SetRank({true, rank}); }
  void SetPhase(const std::string& phase);

  // Empty when done; else what is missing. Raises what a handler of a signal raises.
  std::string Wait(double seconds);
  // goes_on(missing): asked now and then, whether to wait on.
  std::string Close(bool clean, double seconds, const pybind11::function& goes_on);
  // In a forked child: nothing of the parent's is used or destroyed again.
  void Abandon();

  std::shared_ptr<Recorder> recorder() const { return recorder_; }
  pybind11::dict Counters() const;

 protected:
  Agent() = default;

  // Opens the session. Called once, by the constructor of the derived class. Throws ValueError for a configuration that
  // cannot be had.
  void Open(const core::Config& config, const Program& program);

  virtual std::unique_ptr<TensorSource> MakeSource(const core::Config& config) = 0;
  // There is a new recorder(): calls become records of it. The one before stays for calls that are still inside.
  virtual void CaptureInto(std::shared_ptr<Recorder> recorder) = 0;
  // Whether this agent's capture gets the calls that are made from now on.
  virtual void Activate(bool active) = 0;
  // The step ends; nothing of it is waited for any more.
  virtual void ForgetStep() {}
  // The session has been closed.
  virtual void Closed() {}
  // In a forked child: whatever holds the parent's is never destroyed.
  virtual void Leak() = 0;
  // Calls `use` with the framework's tensors as its source takes them. They and their memory stay until `use` returns,
  // which may let the GIL go.
  virtual void WithTensors(std::span<const pybind11::object> tensors,
                           absl::FunctionRef<void(std::span<const TensorRef>)> use) = 0;

 private:
  TensorReading ReadTensor(const pybind11::object& tensor, const MemoryReader& memory);
  std::vector<double> SampleTensor(const pybind11::object& tensor);
  void MakeRecorder(const core::Config& config, std::unique_ptr<TensorSource> source, bool replays);

  core::CaptureSettings settings_;
  std::shared_ptr<core::Session> session_;
  std::shared_ptr<Recorder> recorder_;
  std::unique_ptr<ResponseLog> responses_;  // of recorder_
};

// (min, max, mean, norm, NaNs) of a tensor; None: it has no numbers. Extremes of integers are ints.
pybind11::object NumbersOf(const TensorReading& reading);

[[noreturn]] void Refuse(const absl::Status& status);

// Adds the methods above to the class of a derived agent, and Recorder and Api to the module.
template <typename Derived, typename... Options>
void BindAgent(pybind11::class_<Derived, Options...>& agent) {
  namespace py = pybind11;
  agent.def("start", &Derived::Start, py::arg("step"), py::arg("tokens") = py::none())
      .def("go_on", &Derived::GoOn, py::arg("step"))
      .def("reconfigure", &Derived::Reconfigure, py::arg("config"), py::arg("replay") = false)
      .def("set_compiled_cells", &Derived::SetCompiledCells)
      .def("set_request_rows", &Derived::SetRequestRows)
      .def("set_bench", &Derived::SetBench)
      .def("log", &Derived::Log, py::arg("step"), py::arg("values"))
      .def("read_series", &Derived::ReadSeries, py::arg("name"), py::arg("tensor"))
      .def("before_update", &Derived::BeforeUpdate, py::arg("name"), py::arg("tensor"))
      .def("after_update", &Derived::AfterUpdate, py::arg("name"), py::arg("shard"), py::arg("tensor"))
      .def("log_tokens", &Derived::LogTokens, py::arg("step"), py::arg("request"), py::arg("tokens"),
           py::arg("logprobs"))
      .def("end_response", &Derived::EndResponse, py::arg("step"), py::arg("request"))
      .def("add_series", &Derived::AddSeries, py::arg("name"), py::arg("value"))
      .def("send_series", &Derived::SendSeries, py::arg("step"))
      .def("forget_series", &Derived::ForgetSeries)
      .def("look_at_gradients", &Derived::LookAtGradients, py::arg("step"), py::arg("gradients"))
      .def("diff_check_done", &Derived::DiffCheckDone)
      .def("stop", &Derived::Stop)
      .def("end_step", &Derived::EndStep, py::arg("step"), py::arg("keep"))
      .def("export_open_step", &Derived::ExportOpenStep)
      .def("set_rank", &Derived::SetRank)
      .def("set_phase", &Derived::SetPhase)
      .def("wait", &Derived::Wait)
      .def("close", &Derived::Close, py::arg("clean"), py::arg("seconds"), py::arg("goes_on"))
      .def("abandon", &Derived::Abandon)
      .def_property_readonly("recorder", &Derived::recorder)
      .def("counters", &Derived::Counters);
}

}  // namespace msprobe::capture
