#pragma once

#include <pybind11/pybind11.h>

namespace msprobe::capture {

// Adds Recorder to the module, with the methods by which a debugger obeys and answers commands (core::ControlMailbox).
void BindControl(pybind11::module_& module);

}  // namespace msprobe::capture
