#include "server/format/json/json_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
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

// Room for the longest number: 17 digits before which 1e-4 has zeros, or an exponent.
using NumberText = std::array<char, 40>;

std::string_view WriteNumber(double value, NumberText& digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  const double magnitude = std::fabs(value);
  // Where repr changes to an exponent.
  const bool scientific = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  char* end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                            scientific ? std::chars_format::scientific : std::chars_format::fixed)
                  .ptr;
  if (!scientific && std::find(digits.data(), end, '.') == end) {
    end = std::ranges::copy(std::string_view(".0"), end).out;
  }
  return {digits.data(), end};
}

// Whether JSON has a character of ASCII as it is, between quotes.
bool IsPlain(char c) { return c >= ' ' && c != '"' && c != '\\'; }

// The same for eight characters at once.
bool ArePlain(const char* characters) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  uint64_t word;
  std::memcpy(&word, characters, sizeof(word));
  // The lowest byte that is not plain gets its high bit set; no borrow reaches it.
  const uint64_t found = word | (word - kOnes * ' ') | ((word ^ kOnes * '"') - kOnes) | ((word ^ kOnes * '\\') - kOnes);
  return (found & kOnes << 7) == 0;
}

size_t PlainPrefix(std::string_view text) {
  size_t at = 0;
  while (at + sizeof(uint64_t) <= text.size() && ArePlain(text.data() + at)) at += sizeof(uint64_t);
  while (at < text.size() && IsPlain(text[at])) ++at;
  return at;
}

std::string Escape(char c) {
  constexpr std::string_view kChars = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  const size_t at = kChars.find(c);
  return at == std::string_view::npos ? absl::StrFormat("\\u%04X", c) : std::string{'\\', kNames[at]};
}

// Puts a text of ASCII with its quotes. False, and nothing is put: it is no such text.
bool PutAscii(std::string_view text, rapidjson::StringBuffer& buffer) {
  const size_t before = buffer.GetSize();
  const auto put = [&buffer](std::string_view part) { std::ranges::copy(part, buffer.Push(part.size())); };
  put("\"");
  for (size_t at = PlainPrefix(text); at < text.size(); at = PlainPrefix(text)) {
    if (!absl::ascii_isascii(static_cast<unsigned char>(text[at]))) {
      buffer.Pop(buffer.GetSize() - before);
      return false;
    }
    put(text.substr(0, at));
    put(Escape(text[at]));
    text.remove_prefix(at + 1);
  }
  put(text);
  put("\"");
  return true;
}

}  // namespace

std::string JsonNumber(double value) {
  NumberText digits;
  return std::string(WriteNumber(value, digits));
}

bool JsonWriter::Double(double value) {
  if (strict_ && !std::isfinite(value)) return Null();
  NumberText digits;
  return Put(WriteNumber(value, digits), rapidjson::kNumberType);
}

bool JsonWriter::Text(std::string_view text) {
  Prefix(rapidjson::kStringType);
  return EndValue(PutAscii(text, buffer_) || WriteString(text.data(), static_cast<rapidjson::SizeType>(text.size())));
}

bool JsonWriter::Put(std::string_view value, rapidjson::Type type) {
  Prefix(type);
  std::ranges::copy(value, buffer_.Push(value.size()));
  return EndValue(true);
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
