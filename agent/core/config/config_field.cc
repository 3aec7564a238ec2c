#include "agent/core/config/config_field.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "agent/core/str_cat.h"
#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"

namespace msprobe::core {
namespace {

using rapidjson::Value;

constexpr int64_t kLargestRankOrStep = 1'000'000;
constexpr size_t kLongestShown = 200;

absl::Status Refusal(std::string_view field, std::string_view rule, const Value& value) {
  return absl::InvalidArgumentError(
      Cat(field, " is invalid, it should be ", rule, ", currently it is ", Shown(value), "."));
}

std::string TypeName(const Value& value) {
  if (value.IsString()) return "str";
  if (value.IsBool()) return "bool";
  if (value.IsNumber()) return value.IsInt64() || value.IsUint64() ? "int" : "float";
  if (value.IsArray()) return "list";
  if (value.IsObject()) return "dict";
  return "null";
}

// Without an exponent.
std::string Digits(double number) { return absl::StrFormat("%.15g", number); }

absl::Status CheckRankOrStep(int64_t number, std::string_view field) {
  if (number >= 0 && number <= kLargestRankOrStep) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("Each element of ", field, " must be between 0 and ", kLargestRankOrStep, ", currently it is ", number, "."));
}

bool ReadDigits(std::string_view text, int64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 0;
}

absl::Status ReadSliceField(const Value& rule, const char* name, bool may_be_negative, std::optional<int64_t>* out) {
  const auto member = rule.FindMember(name);
  if (member == rule.MemberEnd() || member->value.IsNull()) return absl::OkStatus();
  if (!member->value.IsInt64()) {
    return absl::InvalidArgumentError(Cat("Field '", name, "' in slice must be an integer, got ",
                                          TypeName(member->value), ": ", Shown(member->value)));
  }
  if (!may_be_negative && member->value.GetInt64() < 0) {
    return absl::InvalidArgumentError(Cat("slice.", name, " cannot be negative, got ", member->value.GetInt64()));
  }
  *out = member->value.GetInt64();
  return absl::OkStatus();
}

bool IsCount(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

bool IsDirection(const std::string& text) { return text == "forward" || text == "backward"; }

bool IsModuleKind(const std::string& text) { return text == "Module" || text == "Cell"; }

// Functional.linear.0.forward
bool IsApiName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  const size_t size = parts.size();
  return size >= 4 && !parts[0].empty() && !IsModuleKind(parts[0]) && !parts[1].empty() && IsCount(parts[size - 2]) &&
         IsDirection(parts[size - 1]);
}

// Module.layers.0.Linear.forward.0
bool IsModuleName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  const size_t size = parts.size();
  return size >= 4 && IsModuleKind(parts[0]) && !parts[1].empty() && IsDirection(parts[size - 2]) &&
         IsCount(parts[size - 1]);
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

std::string Shown(const Value& value) {
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  value.Accept(writer);
  std::string text(buffer.GetString(), buffer.GetSize());
  if (text.size() > kLongestShown) text = Cat(text.substr(0, kLongestShown), "...");
  return text;
}

std::string ShownList(std::span<const std::string_view> names) {
  std::string list = "[";
  for (std::string_view name : names) list += Cat(list.size() == 1 ? "'" : ", '", name, "'");
  return list + "]";
}

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

absl::Status ReadString(const Value* value, std::string_view field, std::string* out) {
  if (value == nullptr) return absl::OkStatus();
  if (!value->IsString()) return Refusal(field, "a string", *value);
  out->assign(value->GetString(), value->GetStringLength());
  return absl::OkStatus();
}

absl::Status ReadBool(const Value* value, std::string_view field, bool* out) {
  if (value == nullptr) return absl::OkStatus();
  if (!value->IsBool()) return Refusal(field, "a boolean", *value);
  *out = value->GetBool();
  return absl::OkStatus();
}

absl::Status ReadStringList(const Value* value, std::string_view field, std::vector<std::string>* out) {
  if (value == nullptr) return absl::OkStatus();
  if (!value->IsArray()) return Refusal(field, "a list[str]", *value);
  for (const Value& element : value->GetArray()) {
    if (!element.IsString()) return Refusal(field, "a list[str]", *value);
    out->emplace_back(element.GetString(), element.GetStringLength());
  }
  return absl::OkStatus();
}

absl::Status ReadNumber(const Value* value, std::string_view field, double low, double high, double* out) {
  if (value == nullptr) return absl::OkStatus();
  if (!value->IsNumber() || !(value->GetDouble() >= low && value->GetDouble() <= high)) {
    return Refusal(field, Cat("a number from ", Digits(low), " to ", Digits(high)), *value);
  }
  *out = value->GetDouble();
  return absl::OkStatus();
}

absl::Status ReadWholeNumber(const Value* value, std::string_view field, uint64_t* out) {
  if (value == nullptr) return absl::OkStatus();
  if (!value->IsUint64()) return Refusal(field, "a whole number of at least 0", *value);
  *out = value->GetUint64();
  return absl::OkStatus();
}

absl::Status ReadChoice(const Value* value, std::string_view field, std::span<const std::string_view> allowed,
                        size_t* out) {
  if (value == nullptr) return absl::OkStatus();
  if (value->IsString()) {
    const auto it = std::find(allowed.begin(), allowed.end(), value->GetString());
    if (it != allowed.end()) {
      *out = static_cast<size_t>(it - allowed.begin());
      return absl::OkStatus();
    }
  }
  return Refusal(field, Cat("one of ", ShownList(allowed)), *value);
}

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

void SortUnique(std::vector<uint32_t>* numbers) {
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
}

absl::Status ReadRankOrStep(const Value* value, std::string_view field, std::vector<uint32_t>* out) {
  if (value == nullptr) return absl::OkStatus();
  if (!value->IsArray()) {
    return absl::InvalidArgumentError(
        Cat(field, " is invalid, it should be a list, currently it is ", Shown(*value), "."));
  }
  for (const Value& element : value->GetArray()) {
    absl::Status status;
    if (element.IsString()) {
      status = AddRankOrStep({element.GetString(), element.GetStringLength()}, field, out);
    } else if (element.IsInt64()) {
      status = CheckRankOrStep(element.GetInt64(), field);
      if (status.ok()) out->push_back(static_cast<uint32_t>(element.GetInt64()));
    } else {
      status = absl::InvalidArgumentError(Cat(field, " element ", Shown(element), " must be an integer or string."));
    }
    if (!status.ok()) return status;
  }
  SortUnique(out);
  return absl::OkStatus();
}

absl::Status ReadDataMode(const Value* value, Config* config) {
  static constexpr std::array<std::string_view, 5> kModes = {"all", "input", "output", "forward", "backward"};
  std::vector<std::string> modes;
  if (absl::Status status = ReadStringList(value, "data_mode", &modes); !status.ok()) return status;
  const auto has = [&](std::string_view mode) { return std::find(modes.begin(), modes.end(), mode) != modes.end(); };
  if (has("all") && modes.size() != 1) {
    return absl::InvalidArgumentError(
        Cat("'all' cannot be combined with other options in data_mode. Currently it is ", Shown(*value), "."));
  }
  if (modes.size() >= kModes.size()) {
    return absl::InvalidArgumentError(Cat("The number of elements in the data_mode cannot exceed ", kModes.size() - 1,
                                          ", currently it is ", Shown(*value), "."));
  }
  for (const std::string& mode : modes) {
    if (std::find(kModes.begin(), kModes.end(), mode) != kModes.end()) continue;
    return absl::InvalidArgumentError(
        Cat("The element '", mode, "' of data_mode ", Shown(*value), " is not in ", ShownList(kModes), "."));
  }
  if (modes.empty() || has("all")) return absl::OkStatus();
  // Naming neither of a pair leaves both.
  const bool directions = has("forward") || has("backward"), sides = has("input") || has("output");
  config->forward = !directions || has("forward");
  config->backward = !directions || has("backward");
  config->input = !sides || has("input");
  config->output = !sides || has("output");
  return absl::OkStatus();
}

absl::Status ReadSlice(const Value* value, std::vector<SliceRule>* out) {
  if (value == nullptr) return absl::OkStatus();
  if (!value->IsArray()) return Refusal("slice", "a list", *value);
  for (const Value& element : value->GetArray()) {
    if (!element.IsObject()) return Refusal("slice", "a list[dict]", *value);
    for (const auto& member : element.GetObject()) {
      static constexpr std::array<std::string_view, 4> kFields = {"dim", "size", "begin", "end"};
      if (std::find(kFields.begin(), kFields.end(), member.name.GetString()) == kFields.end()) {
        return absl::InvalidArgumentError(Cat("slice is invalid: unknown field \"", member.name.GetString(),
                                              "\"; an element has ", ShownList(kFields), "."));
      }
    }
    std::optional<int64_t> dim, begin;
    SliceRule rule;
    for (absl::Status status :
         {ReadSliceField(element, "dim", false, &dim), ReadSliceField(element, "size", false, &rule.size),
          ReadSliceField(element, "begin", true, &begin), ReadSliceField(element, "end", true, &rule.end)}) {
      if (!status.ok()) return status;
    }
    rule.dim = dim.value_or(0);
    rule.begin = begin.value_or(0);
    out->push_back(rule);
  }
  return absl::OkStatus();
}

absl::Status ReadScope(const Value* value, Level level, std::vector<std::string>* out) {
  if (absl::Status status = ReadStringList(value, "scope", out); !status.ok()) return status;
  if (out->empty()) return absl::OkStatus();
  if (out->size() != 2) {
    return absl::InvalidArgumentError(
        Cat("Invalid scope: it should be a list of length 2, the full names that begin and end it; its length is ",
            out->size(), ": ", Shown(*value)));
  }
  for (const std::string& name : *out) {
    const bool api = IsApiName(name), module = IsModuleName(name);
    constexpr std::string_view kApi = "an API (Functional.linear.0.forward)";
    constexpr std::string_view kModule = "a module (Module.layers.0.Linear.forward.0)";
    std::string rule;
    if (level == Level::kL1 && !api) rule = kApi;
    if (level == Level::kL0 && !module) rule = kModule;
    if (level == Level::kMix && !api && !module) rule = Cat(kApi, " or ", kModule);
    if (rule.empty()) continue;
    return absl::InvalidArgumentError(Cat("Invalid scope: at level ", ToString(level),
                                          " each element should be the full name of ", rule, ", but one is \"", name,
                                          "\""));
  }
  return absl::OkStatus();
}

absl::Status CheckLoadModules(const std::vector<std::string>& modules) {
  constexpr std::string_view kRule = "of full names like Module.layers.0.Linear.forward.0";
  if (modules.empty()) {
    return absl::InvalidArgumentError(Cat("load.modules is required and must be a non-empty list[str] ", kRule, "."));
  }
  for (const std::string& name : modules) {
    const std::vector<std::string> parts = absl::StrSplit(name, '.');
    if (IsModuleName(name) && parts[parts.size() - 2] == "forward") continue;
    return absl::InvalidArgumentError(
        Cat("load.modules is invalid, it should be a list ", kRule, ", but one is \"", name, "\"."));
  }
  return absl::OkStatus();
}

}  // namespace msprobe::core
