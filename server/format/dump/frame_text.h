#pragma once

#include <string>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The line of stack.json for a frame.
std::string FrameText(const v1::Frame& frame);

}  // namespace msprobe::server
