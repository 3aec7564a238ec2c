#pragma once

#include <string>
#include <string_view>

namespace msprobe::server {

// Makes a text safe for a line that people read, perhaps on a terminal, because names may come from strangers.
// Characters that would begin a new line, move the cursor, change the colour or turn the direction of writing become
// \n, \x1b or \u202e, and so do bytes that are not UTF-8.
std::string Visible(std::string_view text);

}  // namespace msprobe::server
