#pragma once

#include <string>
#include <string_view>

namespace msprobe::core {

// `text` with every byte that does not belong to a well-formed UTF-8 sequence replaced by U+FFFD. Strings from Python
// and from source files may be anything, and protobuf refuses a message that holds one malformed string.
std::string ToUtf8(std::string_view text);
// Whether ToUtf8 leaves `text` as it is.
bool IsUtf8(std::string_view text);

// For a line that people read, on a terminal perhaps: what would begin another line, move the cursor, colour it or turn
// the direction of writing stands there as \n, \x1b or \u202e, and so do malformed bytes. Servers and those who ask
// through them say what is printed in the program's terminal.
std::string Visible(std::string_view text);

}  // namespace msprobe::core
