#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "server/format/json/json_cursor.h"

namespace msprobe::server {

// The meaning of single values of a text. A JsonCursor has taken each of them, so it is well-formed.

// The characters of a string, escapes undone; valid as long as the text and `scratch`, which holds them if there are
// escapes.
std::string_view StringOf(const JsonText& string, std::string& scratch);
std::string StringOf(const JsonText& string);

// A number without a fraction and an exponent is whole where it fits, the first of these types that does.
using JsonNumberValue = std::variant<int64_t, uint64_t, double>;
// value.is_number(). A number beyond the largest double is infinite.
JsonNumberValue NumberOf(const JsonText& value);
double DoubleOf(const JsonText& value);
// Nothing: another number, or no number.
std::optional<int64_t> Int64Of(const JsonText& value);
std::optional<uint64_t> Uint64Of(const JsonText& value);

// "a list", "the text \"abc\"", "the number 3": for messages.
std::string Describe(const JsonText& value);

}  // namespace msprobe::server
