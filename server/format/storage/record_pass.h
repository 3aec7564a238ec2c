#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace msprobe::server {

// Several backward passes over one forward call. The first has the name that it has alone; the others have their number
// behind it: {name}.{count}.backward.{pass}, {name}.backward.{count}.{pass}. On the wire it stands behind the name of
// the structure, Structure.name: {name}#{pass}. Neither classes nor functions are named so.

struct PassOfStructure {
  std::string_view name;
  uint32_t pass = 0;
};
PassOfStructure SplitPass(std::string_view structure_name);
std::string JoinPass(std::string_view name, uint32_t pass);

// The full name of the first pass, of a record of another one; any other name as it is.
std::string_view WithoutPass(std::string_view full_name);

}  // namespace msprobe::server
