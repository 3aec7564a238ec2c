#pragma once

#include <pybind11/pybind11.h>

namespace msprobe::capture {

// Adds to the module what AclGraphDumper is made of: ProbeTable, GraphRecord and emit_graph.
void BindGraphs(pybind11::module_& module);

}  // namespace msprobe::capture
