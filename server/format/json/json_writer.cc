#include "server/format/json/json_writer.h"

#include <charconv>
#include <cmath>
#include <type_traits>
#include <variant>

#include "server/format/json/json_cursor.h"
#include "server/format/json/json_value.h"

namespace msprobe::server {
namespace {

// Only what a text and a number can hold is written.
constexpr JsonLimits kExact = {.exact = true};

void Copy(JsonCursor& json, JsonWriter& writer) {
  switch (json.Peek()) {
    case JsonType::kObject: {
      writer.StartObject();
      json.EnterObject();
      std::string_view key;
      while (json.NextKey(key)) {
        writer.Name(key);
        Copy(json, writer);
      }
      writer.EndObject();
      return;
    }
    case JsonType::kArray:
      writer.StartArray();
      json.EnterArray();
      while (json.NextItem()) Copy(json, writer);
      writer.EndArray();
      return;
    case JsonType::kString:
      writer.Text(json.String());
      return;
    case JsonType::kTrue:
    case JsonType::kFalse:
      writer.Bool(json.Take().type == JsonType::kTrue);
      return;
    case JsonType::kNull:
      json.Skip();
      writer.Null();
      return;
    default:
      std::visit(
          [&writer](auto number) {
            if constexpr (std::is_same_v<decltype(number), double>) {
              writer.Double(number);
            } else if constexpr (std::is_same_v<decltype(number), int64_t>) {
              writer.Int64(number);
            } else {
              writer.Uint64(number);
            }
          },
          NumberOf(json.Take()));
  }
}

}  // namespace

std::string JsonNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char digits[40];
  const double magnitude = std::fabs(value);
  // Where repr changes to an exponent.
  const bool scientific = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto result = std::to_chars(digits, digits + sizeof(digits), value,
                                    scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(digits, result.ptr);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

bool JsonWriter::Double(double value) {
  if (strict_ && !std::isfinite(value)) return Null();
  const std::string text = JsonNumber(value);
  return RawValue(text.data(), text.size(), rapidjson::kNumberType);
}

void JsonWriter::Json(std::string_view text) {
  // Checked first: half a value cannot be taken back.
  JsonCursor check(text, kExact);
  check.Skip();
  check.ExpectEnd();
  if (!check.ok() || !IsUtf8(text)) {
    Null();
    return;
  }
  JsonCursor json(text, kExact);
  Copy(json, *this);
}

std::string JsonWriter::Take() {
  std::string text(buffer_.GetString(), buffer_.GetSize());
  buffer_.Clear();
  Reset(buffer_);
  return text;
}

}  // namespace msprobe::server
