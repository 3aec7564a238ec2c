#include "agent/python/control_binding.h"

#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/capture/recorder.h"
#include "agent/core/transport/control.h"

namespace py = pybind11;

namespace msprobe::capture {
namespace {

core::Controlled* ControlledOf(Recorder& recorder) { return dynamic_cast<core::Controlled*>(&recorder.session()); }

std::string NameOf(core::ControlCommand::Action action) {
  using Action = core::ControlCommand::Action;
  switch (action) {
    case Action::kStatus:
      return "status";
    case Action::kStart:
      return "start";
    case Action::kStop:
      return "stop";
    case Action::kSet:
      return "set";
    case Action::kNext:
      return "next";
    case Action::kRequest:
      return "request";
    case Action::kDeeper:
      return "deeper";
  }
  return "unknown";
}

// (id, action, settings as JSON, steps, request, who asked)
using Command = std::tuple<uint64_t, std::string, std::string, uint32_t, std::string, std::string>;

std::vector<Command> TakeCommands(Recorder& recorder) {
  std::vector<Command> taken;
  core::Controlled* const controlled = ControlledOf(recorder);
  if (controlled == nullptr || !controlled->control().waiting()) return taken;
  for (core::ControlCommand& command : controlled->control().Take()) {
    taken.emplace_back(command.id, NameOf(command.action), std::move(command.settings_json), command.steps,
                       std::move(command.request), std::move(command.asked_by));
  }
  return taken;
}

void AnswerCommand(Recorder& recorder, uint64_t command, std::string said, bool refused) {
  if (core::Controlled* controlled = ControlledOf(recorder)) {
    controlled->control().Answer(command, std::move(said), refused);
  }
}

void SayState(Recorder& recorder, bool enabled, bool capturing, uint32_t step, int64_t steps_left,
              const std::string& request) {
  core::Controlled* const controlled = ControlledOf(recorder);
  if (controlled == nullptr) return;
  const core::Config& config = recorder.config();
  core::ControlState state;
  state.enabled = enabled;
  state.capturing = capturing;
  state.task = core::ToString(config.task);
  state.level = core::ToString(config.level);
  state.summary_mode = core::ToString(config.summary_mode);
  for (const std::string& pattern : config.list) state.list += (state.list.empty() ? "" : ", ") + pattern;
  state.request = request;
  state.step = step;
  state.steps_left = steps_left;
  controlled->control().SetState(std::move(state));
}

}  // namespace

void BindControl(py::module_& module) {
  py::class_<Recorder, std::shared_ptr<Recorder>>(module, "Recorder", py::module_local())
      .def("stay_connected",
           [](Recorder& recorder) {
             if (core::Controlled* controlled = ControlledOf(recorder)) controlled->StayConnected();
           })
      .def("take_commands", &TakeCommands)
      .def("answer_command", &AnswerCommand, py::arg("command"), py::arg("said"), py::arg("refused"))
      .def("say_state", &SayState, py::arg("enabled"), py::arg("capturing"), py::arg("step"), py::arg("steps_left"),
           py::arg("request"));
}

}  // namespace msprobe::capture
