#include "agent/core/config/json_values.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "agent/core/str_cat.h"
#include "agent/core/utf8.h"
#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"

namespace msprobe::core {
namespace {

using rapidjson::Value;

constexpr size_t kLongestShown = 200;

absl::Status Refusal(std::string_view field, std::string_view rule, const Value& value) {
  return absl::InvalidArgumentError(
      Cat(field, " is invalid, it should be ", rule, ", currently it is ", Shown(value), "."));
}

absl::Status CheckRankOrStep(int64_t number, std::string_view field) {
  if (number >= 0 && number <= kLargestRankOrStep) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("Each element of ", field, " must be between 0 and ", kLargestRankOrStep, ", currently it is ", number, "."));
}

bool ReadDigits(std::string_view text, int64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 0;
}

// "3" or "3-5".
absl::Status AddRankOrStep(std::string_view text, std::string_view field, std::vector<uint32_t>* out) {
  const size_t hyphen = text.find('-');
  int64_t first = 0, last = 0;
  const bool is_range = hyphen != std::string_view::npos;
  if (!ReadDigits(text.substr(0, hyphen), &first) || (is_range && !ReadDigits(text.substr(hyphen + 1), &last))) {
    return absl::InvalidArgumentError(Cat("The string parameter for ", field,
                                          " only supports formats like \"3\" or \"3-5\". ", "Now string parameter for ",
                                          field, " is \"", text, "\"."));
  }
  if (!is_range) last = first;
  if (absl::Status status = CheckRankOrStep(first, field); !status.ok()) return status;
  if (absl::Status status = CheckRankOrStep(last, field); !status.ok()) return status;
  if (first > last) {
    return absl::InvalidArgumentError(Cat("For the hyphen(-) in ", field, ", the left boundary (", first,
                                          ") cannot be greater than the right boundary (", last, ")."));
  }
  for (int64_t number = first; number <= last; ++number) out->push_back(static_cast<uint32_t>(number));
  return absl::OkStatus();
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string TypeName(const Value& value) {
  if (value.IsString()) return "str";
  if (value.IsBool()) return "bool";
  if (value.IsNumber()) return value.IsInt64() || value.IsUint64() ? "int" : "float";
  if (value.IsArray()) return "list";
  if (value.IsObject()) return "dict";
  return "null";
}

std::string Digits(double number) { return absl::StrFormat("%.15g", number); }

std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates) {
  std::string_view nearest;
  const std::string lower = absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
  size_t least = std::min<size_t>(3, name.size());
  for (std::string_view candidate : candidates) {
    const size_t distance = EditDistance(lower, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string JsonText(const Value& value) {
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  value.Accept(writer);
  return {buffer.GetString(), buffer.GetSize()};
}

std::string Shown(const Value& value) {
  std::string text = JsonText(value);
  if (text.size() > kLongestShown) text = Cat(text.substr(0, kLongestShown), "...");
  return text;
}

std::string ShownList(std::span<const std::string_view> names) {
  std::string list = "[";
  for (std::string_view name : names) list += Cat(list.size() == 1 ? "'" : ", '", name, "'");
  return list + "]";
}

absl::Status ReadString(const Value& value, std::string_view field, std::string* out) {
  if (!value.IsString()) return Refusal(field, "a string", value);
  out->assign(value.GetString(), value.GetStringLength());
  if (!IsUtf8(*out)) {  // JSON can name half a surrogate pair, as Python does for a byte of a file's name
    return absl::InvalidArgumentError(
        Cat(field, " is invalid, it should be text in UTF-8, currently it is \"", ToUtf8(*out), "\"."));
  }
  return absl::OkStatus();
}

absl::Status ReadDirectory(const Value& value, std::string_view field, std::string* out) {
  std::string given;
  if (absl::Status status = ReadString(value, field, &given); !status.ok()) return status;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(given, error).lexically_normal();
  if (error || !std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        Cat(field, " is invalid, it should be a directory that exists, currently it is ", Shown(value), "."));
  }
  *out = path.string();
  return absl::OkStatus();
}

absl::Status ReadBool(const Value& value, std::string_view field, bool* out) {
  if (!value.IsBool()) return Refusal(field, "a boolean", value);
  *out = value.GetBool();
  return absl::OkStatus();
}

absl::Status ReadStringList(const Value& value, std::string_view field, std::vector<std::string>* out) {
  if (!value.IsArray()) return Refusal(field, "a list[str]", value);
  std::vector<std::string> texts;
  for (const Value& element : value.GetArray()) {
    if (!element.IsString()) return Refusal(field, "a list[str]", value);
    texts.emplace_back(element.GetString(), element.GetStringLength());
  }
  *out = std::move(texts);
  return absl::OkStatus();
}

absl::Status ReadNumber(const Value& value, std::string_view field, double low, double high, double* out) {
  if (!value.IsNumber() || !(value.GetDouble() >= low && value.GetDouble() <= high)) {
    return Refusal(field, Cat("a number from ", Digits(low), " to ", Digits(high)), value);
  }
  *out = value.GetDouble();
  return absl::OkStatus();
}

absl::Status ReadWholeNumber(const Value& value, std::string_view field, uint64_t* out, uint64_t least) {
  if (!value.IsUint64() || value.GetUint64() < least) {
    return Refusal(field, Cat("a whole number of at least ", least), value);
  }
  *out = value.GetUint64();
  return absl::OkStatus();
}

absl::Status ReadChoice(const Value& value, std::string_view field, std::span<const std::string_view> allowed,
                        size_t* out) {
  if (value.IsString()) {
    const auto it = std::find(allowed.begin(), allowed.end(), value.GetString());
    if (it != allowed.end()) {
      *out = static_cast<size_t>(it - allowed.begin());
      return absl::OkStatus();
    }
  }
  return Refusal(field, Cat("one of ", ShownList(allowed)), value);
}

absl::Status ReadRankOrStep(const Value& value, std::string_view field, std::vector<uint32_t>* out) {
  if (!value.IsArray()) {
    return absl::InvalidArgumentError(
        Cat(field, " is invalid, it should be a list, currently it is ", Shown(value), "."));
  }
  std::vector<uint32_t> numbers;
  for (const Value& element : value.GetArray()) {
    absl::Status status;
    if (element.IsString()) {
      status = AddRankOrStep({element.GetString(), element.GetStringLength()}, field, &numbers);
    } else if (element.IsInt64()) {
      status = CheckRankOrStep(element.GetInt64(), field);
      if (status.ok()) numbers.push_back(static_cast<uint32_t>(element.GetInt64()));
    } else {
      status = absl::InvalidArgumentError(Cat(field, " element ", Shown(element), " must be an integer or string."));
    }
    if (!status.ok()) return status;
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  *out = std::move(numbers);
  return absl::OkStatus();
}

}  // namespace msprobe::core
