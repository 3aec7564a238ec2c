#pragma once

#include <pybind11/pybind11.h>

namespace msprobe::capture {

// Adds to the module: Config, with a property for each field of config.json; parse_config, config_fields, why_fixed and
// choose_run_name.
void BindConfig(pybind11::module_& module);

}  // namespace msprobe::capture
