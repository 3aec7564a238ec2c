#include "server/format/json/json_writer.h"

#include <charconv>
#include <cmath>

#include "rapidjson/error/en.h"
#include "rapidjson/memorystream.h"
#include "rapidjson/reader.h"

namespace msprobe::server {
namespace {

constexpr unsigned kJsonFlags =
    rapidjson::kParseNanAndInfFlag | rapidjson::kParseFullPrecisionFlag | rapidjson::kParseIterativeFlag;

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
  rapidjson::BaseReaderHandler<> nothing;
  rapidjson::Reader reader;
  rapidjson::MemoryStream check(text.data(), text.size());
  if (reader.Parse<kJsonFlags>(check, nothing).IsError()) {
    Null();
    return;
  }
  rapidjson::MemoryStream stream(text.data(), text.size());
  reader.Parse<kJsonFlags>(stream, *this);
}

std::string JsonWriter::Take() {
  std::string text(buffer_.GetString(), buffer_.GetSize());
  buffer_.Clear();
  Reset(buffer_);
  return text;
}

}  // namespace msprobe::server
