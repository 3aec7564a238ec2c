#include "server/format/storage/record_pass.h"

#include <charconv>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

PassOfStructure SplitPass(std::string_view structure_name) {
  const size_t mark = structure_name.rfind('#');
  if (mark == std::string_view::npos || mark == 0 || !IsNumber(structure_name.substr(mark + 1))) {
    return {structure_name};
  }
  const std::string_view digits = structure_name.substr(mark + 1);
  uint32_t pass = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), pass).ec != std::errc()) return {structure_name};
  return {structure_name.substr(0, mark), pass};
}

std::string JoinPass(std::string_view name, uint32_t pass) {
  return pass == 0 ? std::string(name) : Cat(name, "#", pass);
}

std::string_view WithoutPass(std::string_view full_name) {
  // The last three parts: {count}.backward.{pass} or backward.{count}.{pass}.
  std::string_view parts[3];
  std::string_view rest = full_name;
  for (std::string_view& part : parts) {
    const size_t dot = rest.rfind('.');
    if (dot == std::string_view::npos) return full_name;
    part = rest.substr(dot + 1);
    rest = rest.substr(0, dot);
  }
  const bool has_pass =
      IsNumber(parts[0]) && parts[0] != "0" &&
      ((parts[1] == "backward" && IsNumber(parts[2])) || (IsNumber(parts[1]) && parts[2] == "backward"));
  return has_pass ? full_name.substr(0, full_name.size() - parts[0].size() - 1) : full_name;
}

}  // namespace msprobe::server
