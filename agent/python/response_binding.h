#pragma once

#include <pybind11/pybind11.h>

namespace msprobe::capture {

// Adds to the module: judge_reply, which runs ResponseDetector over a whole reply.
void BindResponses(pybind11::module_& module);

}  // namespace msprobe::capture
