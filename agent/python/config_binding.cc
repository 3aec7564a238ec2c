#include "agent/python/config_binding.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/core/config/config.h"
#include "agent/core/config/fields.h"
#include "agent/core/config/selector.h"

namespace py = pybind11;

namespace msprobe::capture {
namespace {

using core::Config;

py::object ToPython(const std::vector<core::SliceRule>& rules) {
  py::list shown;
  for (const core::SliceRule& rule : rules) {
    py::dict element;
    element["dim"] = rule.dim;
    element["size"] = rule.size;
    element["begin"] = rule.begin;
    element["end"] = rule.end;
    shown.append(element);
  }
  return shown;
}

py::object ToPython(const core::CaptureSchedule& schedule) {
  py::dict shown;
  shown["wait"] = schedule.wait;
  shown["warmup"] = schedule.warmup;
  shown["active"] = schedule.active;
  shown["repeat"] = schedule.repeat;
  shown["skip_first"] = schedule.skip_first;
  return shown;
}

template <typename Type>
py::object ToPython(const Type& value) {
  return py::cast(value);
}
py::object ToPython(std::monostate) { return py::none(); }

// The value of a field as json.loads would give it.
py::object Given(const Config& config, const core::Field& field) {
  return std::visit([](const auto& value) -> py::object { return ToPython(value); }, field.access.give(config, field));
}

// The section `load` with a member for each of its fields; None where it is absent.
py::object Load(const Config& config) {
  if (!config.load.has_value()) return py::none();
  py::dict members;
  for (const core::Field* field : core::FieldsOf(core::Field::Section::kLoad)) {
    members[py::str(std::string(field->key()))] = Given(config, *field);
  }
  return py::module_::import("types").attr("SimpleNamespace")(**members);
}

// Name -> value of every field that has one.
py::dict Values(const Config& config) {
  py::dict values;
  for (const core::Field& field : core::Fields()) {
    if (field.access.give != nullptr) values[py::str(std::string(field.name))] = Given(config, field);
  }
  return values;
}

Config Parse(const std::string& json, const std::optional<std::string>& task,
             const std::optional<std::string>& dump_path, const std::optional<std::string>& level,
             const std::optional<std::vector<std::string>>& step, const std::optional<std::string>& schedule,
             const std::optional<std::string>& select) {
  core::ConfigOverrides overrides;
  overrides.task = task;
  overrides.dump_path = dump_path;
  overrides.level = level;
  overrides.step = step;
  overrides.schedule = schedule;
  overrides.select = select;
  absl::StatusOr<Config> config = core::ParseConfig(json, overrides);
  if (!config.ok()) throw py::value_error(std::string(config.status().message()));
  return *std::move(config);
}

core::Selector ParseSelector(const std::string& text) {
  absl::StatusOr<core::Selector> selector = core::Selector::Parse(text);
  if (!selector.ok()) throw py::value_error(std::string(selector.status().message()));
  return *std::move(selector);
}

}  // namespace

void BindConfig(py::module_& module) {
  py::class_<Config> config(module, "Config", py::module_local());
  for (const core::Field& field : core::Fields()) {
    if (field.section == core::Field::Section::kLoad || field.access.give == nullptr) continue;
    config.def_property_readonly(std::string(field.name).c_str(),
                                 [&field](const Config& self) { return Given(self, field); });
  }
  config.def_property_readonly("load", &Load)
      .def_readonly("json", &Config::json)
      .def_readonly("warnings", &Config::warnings)
      .def("values", &Values)
      .def(
          "scheduled",
          [](const Config& self, uint64_t step) { return !self.schedule.has_value() || self.schedule->Takes(step); },
          py::arg("step"))
      .def(
          "schedule_is_over",
          [](const Config& self, uint64_t step) { return self.schedule.has_value() && self.schedule->IsOver(step); },
          py::arg("step"));
  module.def("parse_config", &Parse, py::arg("json"), py::arg("task"), py::arg("dump_path"), py::arg("level"),
             py::arg("step"), py::arg("schedule") = py::none(), py::arg("select") = py::none());
  py::class_<core::Selector>(module, "Selector", py::module_local())
      .def(py::init(&ParseSelector), py::arg("text"))
      .def(
          "takes_module",
          [](const core::Selector& self, const std::string& record) {
            return self.Matches(core::Selector::OfModule(record));
          },
          py::arg("record"));
  module.def("config_fields", &core::ConfigFields);
  module.def("why_fixed", &core::WhyFixed, py::arg("field"));
  module.def("choose_run_name", [](const std::string& program) { return core::ChooseRunName(program); });
}

}  // namespace msprobe::capture
