#pragma once

#include <pybind11/pybind11.h>

namespace msprobe::capture {

// Adds the functions to the module with which a debugger obeys and answers commands (core::ControlMailbox).
void BindControl(pybind11::module_& module);

}  // namespace msprobe::capture
