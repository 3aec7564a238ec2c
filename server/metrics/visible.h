#pragma once

#include <string>
#include <string_view>

namespace msprobe::server {

// For a line that people read, on a terminal perhaps: what would begin another line, move the cursor, colour it or turn
// the direction of writing stands there as \n, \x1b or \u202e, and so do bytes that are not UTF-8. Names come from
// whoever sends them.
std::string Visible(std::string_view text);

}  // namespace msprobe::server
