#pragma once

#include <string>
#include <string_view>

namespace msprobe::server {

// Appends a text as Python prints it inside a list: with quotes and escapes.
void AppendPythonRepr(std::string_view text, std::string& out);

// A number as Python prints it: "0.1", "1e+22", "nan", "-inf".
std::string PythonNumber(double value);

}  // namespace msprobe::server
