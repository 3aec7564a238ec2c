#pragma once

#include <pybind11/pybind11.h>

namespace msprobe::capture {

// Adds the parts of AclGraphDumper to the module: ProbeTable, GraphRecord and emit_graph.
void BindGraphs(pybind11::module_& module);

}  // namespace msprobe::capture
