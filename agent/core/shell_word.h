#pragma once

#include <string>
#include <string_view>

namespace msprobe::core {

// A word of a command that somebody will paste into a shell: in quotes where it needs some.
std::string ShellWord(std::string_view word);

}  // namespace msprobe::core
