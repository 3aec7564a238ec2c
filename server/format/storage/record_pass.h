#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace msprobe::server {

// Names of records when one forward call has several backward passes. The first pass has the usual name; the others add
// their number: {name}.{count}.backward.{pass} or {name}.backward.{count}.{pass}. On the wire the number follows the
// name of the structure (Structure.name): {name}#{pass}. No class and no function has a '#' in its name.

struct PassOfStructure {
  std::string_view name;
  uint32_t pass = 0;
};
PassOfStructure SplitPass(std::string_view structure_name);
std::string JoinPass(std::string_view name, uint32_t pass);

// For the full name of a later pass, the full name of the first pass; any other name unchanged.
std::string_view WithoutPass(std::string_view full_name);

}  // namespace msprobe::server
