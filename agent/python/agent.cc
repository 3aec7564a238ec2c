#include "agent/python/agent.h"

#include <unistd.h>

#include <cmath>

#include "agent/capture/compare/bench_dump.h"

namespace py = pybind11;

namespace msprobe::capture {
namespace {

constexpr size_t kSampled = 16384;  // elements of a parameter whose update is looked at

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

}  // namespace

py::object NumbersOf(const TensorReading& reading) {
  const core::Leaf& leaf = reading.leaf;
  if (!leaf.has_statistics) return py::none();
  const auto extreme = [&leaf](int64_t integer, double real) {
    return leaf.is_integer ? py::object(py::int_(integer)) : py::object(py::float_(real));
  };
  return py::make_tuple(extreme(leaf.integer_min, leaf.min), extreme(leaf.integer_max, leaf.max), leaf.mean, leaf.norm,
                        leaf.nan_count);
}

void Refuse(const absl::Status& status) { throw py::value_error(std::string(status.message())); }

void Agent::Open(const core::Config& config, const Program& program) {
  core::SessionOptions options;
  static_cast<core::SessionConfig&>(options) = config.session;
  options.run = program.run;
  options.rank = program.rank ? core::RankLabel{true, *program.rank} : core::RankLabel{false, program.process_id};
  std::unique_ptr<TensorSource> source = MakeSource(config);
  settings_ = options.settings = core::SettingsOf(config, source->framework());
  options.server_binary = program.server_binary;
  options.framework_version = program.framework_version;
  options.program = program.program;
  options.program_path = program.program_path;
  options.interrupted = &InterruptWaits;
  absl::StatusOr<std::unique_ptr<core::Session>> session = core::Session::Open(options);
  if (!session.ok()) Refuse(session.status());
  session_ = *std::move(session);
  MakeRecorder(config, std::move(source), false);
}

void Agent::MakeRecorder(const core::Config& config, std::unique_ptr<TensorSource> source, bool replays) {
  recorder_ = std::make_shared<Recorder>(config, session_, std::move(source), replays);
  responses_ = std::make_unique<ResponseLog>(session_.get(), &recorder_->faults());
  CaptureInto(recorder_);
}

void Agent::Start(uint32_t step, std::optional<std::pair<uint32_t, uint32_t>> tokens) {
  std::optional<TokenWindow::Range> range;
  if (tokens) range = TokenWindow::Range{tokens->first, tokens->second};
  Activate(true);
  recorder_->step().Start(step, range);
}

void Agent::GoOn(uint32_t step) {
  Activate(true);
  recorder_->step().GoOn(step);
}

void Agent::Reconfigure(const core::Config& config, bool replay) {
  recorder_->Stop();
  Activate(false);
  std::unique_ptr<TensorSource> source = MakeSource(config);
  settings_ = core::SettingsOf(config, source->framework());
  session_->SetSettings(settings_);
  MakeRecorder(config, std::move(source), replay);
}

void Agent::SetCompiledCells(std::vector<std::string> cells) {
  if (settings_.compiled_cells == cells) return;
  settings_.compiled_cells = std::move(cells);
  session_->SetSettings(settings_);
}

std::tuple<bool, bool, bool> Agent::EndStep(uint32_t step, bool keep) {
  ForgetStep();
  const Recorder::StepContents had = recorder_->EndStep(step, keep);
  return {had.passes, had.calls, had.records};
}

void Agent::SetRequestRows(std::optional<std::tuple<int64_t, int64_t, int64_t>> rows) {
  if (rows) {
    recorder_->memory().rows().Select(std::get<0>(*rows), std::get<1>(*rows), std::get<2>(*rows));
  } else {
    recorder_->memory().rows().Clear();
  }
}

void Agent::SetBench(const std::string& dump_json) {
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

void Agent::Log(uint32_t step, const std::vector<std::pair<std::string, py::object>>& values) {
  std::vector<ScalarLog::Scalar> scalars;
  scalars.reserve(values.size());
  for (const auto& [name, value] : values) {
    if (PyFloat_Check(value.ptr())) {
      scalars.push_back({.name = name, .value = PyFloat_AS_DOUBLE(value.ptr()), .read = nullptr});
    } else {
      const auto read = [this, &tensor = value](const MemoryReader& memory) { return ReadTensor(tensor, memory); };
      scalars.push_back({.name = name, .read = read});
    }
  }
  recorder_->scalars().Log(step, scalars);
}

void Agent::LogTokens(uint32_t step, const std::string& request, const std::vector<int64_t>& tokens,
                      const std::vector<std::vector<double>>& logprobs) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    core::SampledToken token{.id = tokens[i]};
    if (i < logprobs.size() && !logprobs[i].empty()) {
      token.has_logprobs = true;
      token.top1 = logprobs[i].front();
      // -inf is a candidate that a grammar forbids; the best one is never forbidden.
      for (const double each : logprobs[i]) token.mass += std::exp(each);
    }
    responses_->Token(step, request, token);
  }
}

void Agent::ReadSeries(const std::string& name, const py::object& tensor) {
  recorder_->series().Read(name, [&](const MemoryReader& memory) { return ReadTensor(tensor, memory); });
}

void Agent::BeforeUpdate(const std::string& name, const py::object& tensor) {
  recorder_->series().BeforeUpdate(name, SampleTensor(tensor));
}

void Agent::AfterUpdate(const std::string& name, const std::string& shard, const py::object& tensor) {
  recorder_->series().AfterUpdate(name, shard, SampleTensor(tensor));
}

void Agent::LookAtGradients(uint32_t step, const std::vector<std::pair<std::string, py::object>>& gradients) {
  std::vector<py::object> tensors;
  tensors.reserve(gradients.size());
  for (const auto& [name, gradient] : gradients) tensors.push_back(gradient);
  WithTensors(tensors, [&](std::span<const TensorRef> refs) {
    std::vector<GradientProbe::Gradient> looked_at;
    looked_at.reserve(refs.size());
    for (size_t i = 0; i < refs.size(); ++i) {
      looked_at.push_back({.parameter = gradients[i].first, .tensor = refs[i]});
    }
    const py::gil_scoped_release released;
    recorder_->gradients().Look(step, looked_at);
  });
}

TensorReading Agent::ReadTensor(const py::object& tensor, const MemoryReader& memory) {
  TensorReading reading;
  WithTensors({&tensor, 1}, [&](std::span<const TensorRef> refs) {
    reading = recorder_->source().Read(refs.front(), false, memory);
  });
  return reading;
}

std::vector<double> Agent::SampleTensor(const py::object& tensor) {
  std::vector<double> sample;
  WithTensors({&tensor, 1},
              [&](std::span<const TensorRef> refs) { sample = recorder_->source().Sample(refs.front(), kSampled); });
  return sample;
}

void Agent::SetPhase(const std::string& phase) {
  if (recorder_->step().capturing()) recorder_->opener().SetPhase(phase);
}

std::string Agent::Wait(double seconds) {
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

std::string Agent::Close(bool clean, double seconds, const py::function& goes_on) {
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
  Closed();
  return std::string(status.message());
}

void Agent::Abandon() {
  recorder_->Stop();
  Activate(false);
  new std::shared_ptr<core::Session>(session_);  // kept for ever: destructors would touch the parent's threads
  new std::shared_ptr<Recorder>(recorder_);
  Leak();
}

py::dict Agent::Counters() const {
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
  shown["tensor_bytes_shared"] = recorder_->memory().bytes_shared();
  return shown;
}

}  // namespace msprobe::capture
