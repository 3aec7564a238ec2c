#pragma once

#include <string>
#include <string_view>

namespace msprobe::server {

// A word as a shell reads it: in quotes where it needs some.
std::string ShellWord(std::string_view word);

}  // namespace msprobe::server
