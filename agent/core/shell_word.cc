#include "agent/core/shell_word.h"

namespace msprobe::core {

std::string ShellWord(std::string_view word) {
  constexpr std::string_view kSafe = "@%+=:,./-_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  if (!word.empty() && word.find_first_not_of(kSafe) == std::string_view::npos) return std::string(word);
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? "'\"'\"'" : std::string(1, letter);
  return quoted + "'";
}

}  // namespace msprobe::core
