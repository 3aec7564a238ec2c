#pragma once

#include <string>
#include <string_view>

namespace msprobe::core {

// `text` with every byte that does not belong to a well-formed UTF-8 sequence replaced by U+FFFD. Strings from Python
// and from source files may be anything, and protobuf refuses a message that holds one malformed string.
std::string ToUtf8(std::string_view text);

}  // namespace msprobe::core
