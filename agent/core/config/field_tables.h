#pragma once

#include <string>
#include <string_view>

namespace msprobe::core {

// `document`, with its tables of fields as Fields() has them. A table stands between the lines
// "<!-- table of fields: NAME -->" and "<!-- end of table -->"; NAME is "whole", "task" or "ours".
std::string WithFieldTables(std::string_view document);

}  // namespace msprobe::core
