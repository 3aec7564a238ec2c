#include "agent/python/graph_binding.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/python/control_binding.h"
#include "agent/torch/graph/graph_record.h"
#include "agent/torch/strings/probe_operator.h"
#include "agent/torch/strings/torch_strings.h"
#include "agent/torch/tensor/probe_table.h"
#include "agent/torch/tensor/quiet_dispatch.h"

namespace py = pybind11;

namespace msprobe::capture {
namespace {

using Field = GraphRecord::Field;

// A field as Python writes it: ("key", "input_args"), ("list",), ("probe", table, index, requires_grad), ...
Field FieldOf(const py::tuple& from) {
  Field field;
  const auto kind = from[0].cast<std::string>();
  if (kind == "key" || kind == "string") {
    field.kind = kind == "key" ? Field::Kind::kKey : Field::Kind::kString;
    field.text = from[1].cast<std::string>();
  } else if (kind == "list") {
    field.kind = Field::Kind::kList;
  } else if (kind == "dict") {
    field.kind = Field::Kind::kDict;
  } else if (kind == "end") {
    field.kind = Field::Kind::kEnd;
  } else if (kind == "boolean" || kind == "integer") {
    field.kind = kind == "boolean" ? Field::Kind::kBoolean : Field::Kind::kInteger;
    field.number = from[1].cast<int64_t>();
  } else if (kind == "float") {
    field.kind = Field::Kind::kFloat;
    field.real = from[1].cast<double>();
  } else if (kind == "probe" || kind == "parameter") {
    field.kind = Field::Kind::kProbe;
    field.table = from[1].cast<ProbeTable*>();
    field.number = from[2].cast<int64_t>();
    field.requires_grad = from[3].cast<bool>();
    if (kind == "parameter") field.last = std::make_shared<TensorReading>();
  } else if (kind == "tensor") {
    const py::object tensor = from[1];
    if (!THPVariable_Check(tensor.ptr())) throw py::type_error("a field of kind tensor has none");
    field.kind = Field::Kind::kTensor;
    field.tensor = THPVariable_Unpack(tensor.ptr());
  }
  return field;
}

// before: the record's fields until now, whose parameters keep what was read of them last.
std::vector<Field> FieldsOf(const std::vector<py::tuple>& from, const std::vector<Field>& before) {
  std::vector<Field> fields;
  fields.reserve(from.size());
  for (const py::tuple& each : from) {
    fields.push_back(FieldOf(each));
    Field& made = fields.back();
    if (made.last == nullptr) continue;
    const auto known = std::find_if(before.begin(), before.end(), [&](const Field& field) {
      return field.last != nullptr && field.table == made.table && field.number == made.number;
    });
    if (known != before.end()) made.last = known->last;
  }
  return fields;
}

using Frames =
    std::vector<std::tuple<std::string, uint32_t, std::string, std::string>>;  // path, line, function, source

std::shared_ptr<GraphRecord> MakeRecord(const std::string& name, bool is_module, uint32_t count,
                                        const std::string& parent, const Frames& frames) {
  auto record = std::make_shared<GraphRecord>();
  record->api.name = name;
  record->is_module = is_module;
  record->count = count;
  record->parent = parent;
  for (const auto& [path, line, function, source] : frames) {
    record->frames.push_back({.path = path, .line = line, .function = function, .source = source});
  }
  return record;
}

// events: (record, whether it begins); an API stands with both, one after the other. Gives how many did not run.
uint64_t EmitGraph(const std::shared_ptr<Recorder>& recorder, uint32_t step, const std::vector<ProbeTable*>& tables,
                   const std::vector<std::pair<std::shared_ptr<GraphRecord>, bool>>& events) {
  recorder->step().Start(step);
  recorder->step().BeginToken();
  GraphStep graph(recorder);
  for (const auto& [record, begins] : events) {
    if (begins) {
      graph.Begin(*record);
    } else {
      graph.End(*record);
    }
  }
  recorder->Stop();
  for (ProbeTable* table : tables) table->Forget();
  return graph.missed();
}

}  // namespace

void BindGraphs(py::module_& module) {
  EnsureProbeOperator();
  py::class_<ProbeTable, std::unique_ptr<ProbeTable, py::nodelete>>(module, "ProbeTable")
      .def_property_readonly("id", &ProbeTable::id)
      .def_property_readonly("probes", &ProbeTable::probes)
      .def_property_readonly(
          "slots",
          [](const ProbeTable& table) { return py::reinterpret_steal<py::object>(THPVariable_Wrap(table.slots())); })
      .def("switch", &ProbeTable::Switch, py::arg("on"))
      .def("keep_bytes", &ProbeTable::KeepBytes, py::arg("probe"), py::arg("keep"))
      .def("set_recorder", &ProbeTable::SetRecorder)
      .def("gather", &ProbeTable::Gather)
      .def("forget", &ProbeTable::Forget);
  module.def(
      "make_probe_table",
      [](std::shared_ptr<Recorder> recorder, const std::string& device, int64_t probes) {
        const size_t bytes = recorder->config().session.memory_ceiling_bytes;
        return ProbeTable::Make(std::move(recorder), ParseDevice(device.c_str()), probes, bytes);
      },
      py::arg("recorder"), py::arg("device"), py::arg("probes"), py::return_value_policy::reference);
  py::class_<GraphRecord, std::shared_ptr<GraphRecord>>(module, "GraphRecord")
      .def(py::init(&MakeRecord), py::arg("name"), py::arg("is_module"), py::arg("count"), py::arg("parent"),
           py::arg("frames"))
      .def("set_enter",
           [](GraphRecord& record, const std::vector<py::tuple>& from) { record.enter = FieldsOf(from, record.enter); })
      .def("set_exit",
           [](GraphRecord& record, const std::vector<py::tuple>& from) { record.exit = FieldsOf(from, record.exit); });
  module.def(
      "note_tokens",
      [](const std::shared_ptr<Recorder>& recorder, uint32_t step, const std::string& request, uint64_t tokens,
         uint64_t first_row, uint64_t first_position) {
        recorder->session().NoteTokens(step, 0,
                                       {.request = request,
                                        .first_position = first_position,
                                        .last_position = first_position + tokens - 1,
                                        .first_row = first_row,
                                        .counted = false});
      },
      py::arg("recorder"), py::arg("step"), py::arg("request"), py::arg("tokens"), py::arg("first_row"),
      py::arg("first_position"));
  module.def("emit_graph", &EmitGraph, py::arg("recorder"), py::arg("step"), py::arg("tables"), py::arg("events"));
}

}  // namespace msprobe::capture
