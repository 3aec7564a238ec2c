#pragma once

#include <pybind11/pybind11.h>

namespace msprobe::capture {

// Adds to the module what a debugger obeys and answers commands by (core::ControlMailbox).
void BindControl(pybind11::module_& module);

}  // namespace msprobe::capture
