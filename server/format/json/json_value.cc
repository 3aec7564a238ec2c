#include "server/format/json/json_value.h"

#include <charconv>
#include <cstdlib>
#include <limits>

#include "server/format/cat.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {
namespace {

constexpr size_t kShown = 60;  // of a text, in a message

template <typename Number>
bool Parse(std::string_view digits, Number& value) {
  const char* const end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

double RealOf(std::string_view digits) {
  double value = 0;
  if (Parse(digits, value)) return value;
  return std::strtod(std::string(digits).c_str(), nullptr);  // zero or infinity
}

}  // namespace

std::string_view StringOf(const JsonText& string, std::string& scratch) {
  const std::string_view inside = string.text.substr(1, string.text.size() - 2);
  if (inside.find('\\') == std::string_view::npos) return inside;
  JsonCursor cursor(string.text);
  scratch = cursor.String();
  return scratch;
}

std::string StringOf(const JsonText& string) {
  std::string scratch;
  return std::string(StringOf(string, scratch));
}

JsonNumberValue NumberOf(const JsonText& value) {
  switch (value.type) {
    case JsonType::kNaN:
      return std::numeric_limits<double>::quiet_NaN();
    case JsonType::kInfinity:
      return std::numeric_limits<double>::infinity();
    case JsonType::kMinusInfinity:
      return -std::numeric_limits<double>::infinity();
    default:
      break;
  }
  const char* const end = value.text.data() + value.text.size();
  int64_t whole = 0;
  const auto result = std::from_chars(value.text.data(), end, whole);
  if (result.ptr != end) return RealOf(value.text);
  if (result.ec == std::errc()) return whole;
  if (uint64_t large = 0; Parse(value.text, large)) return large;
  return RealOf(value.text);
}

double DoubleOf(const JsonText& value) {
  return std::visit([](auto number) { return static_cast<double>(number); }, NumberOf(value));
}

std::optional<int64_t> Int64Of(const JsonText& value) {
  int64_t whole = 0;
  if (value.type != JsonType::kNumber || !Parse(value.text, whole)) return std::nullopt;
  return whole;
}

std::optional<uint64_t> Uint64Of(const JsonText& value) {
  // "-0" is whole, too.
  if (const std::optional<int64_t> whole = Int64Of(value); whole && *whole >= 0) return static_cast<uint64_t>(*whole);
  uint64_t whole = 0;
  if (value.type != JsonType::kNumber || !Parse(value.text, whole)) return std::nullopt;
  return whole;
}

std::string Describe(const JsonText& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_null()) return "null";
  JsonWriter writer(false);
  if (value.is_string()) {
    writer.Text(std::string_view(StringOf(value)).substr(0, kShown));
    return Cat("the text ", writer.Take());
  }
  writer.Json(value.text);
  return Cat(value.is_bool() ? "" : "the number ", writer.Take());
}

}  // namespace msprobe::server
