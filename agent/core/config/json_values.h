#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "rapidjson/document.h"

namespace msprobe::core {

// Readers of single values of config.json. Each gives InvalidArgument that names the field, what was given and what is
// allowed; `out` is set only when the value is right.

absl::Status ReadString(const rapidjson::Value& value, std::string_view field, std::string* out);
// A directory that exists; gives its absolute path.
absl::Status ReadDirectory(const rapidjson::Value& value, std::string_view field, std::string* out);
absl::Status ReadBool(const rapidjson::Value& value, std::string_view field, bool* out);
absl::Status ReadStringList(const rapidjson::Value& value, std::string_view field, std::vector<std::string>* out);
// A number from `low` to `high`.
absl::Status ReadNumber(const rapidjson::Value& value, std::string_view field, double low, double high, double* out);
absl::Status ReadWholeNumber(const rapidjson::Value& value, std::string_view field, uint64_t* out, uint64_t least = 0);
// One of `allowed`; gives its index.
absl::Status ReadChoice(const rapidjson::Value& value, std::string_view field,
                        std::span<const std::string_view> allowed, size_t* out);
// Elements 3, "3" or "3-5", from 0 to kLargestRankOrStep; gives each number once, sorted.
constexpr int64_t kLargestRankOrStep = 1'000'000;
absl::Status ReadRankOrStep(const rapidjson::Value& value, std::string_view field, std::vector<uint32_t>* out);

// As JSON.
std::string JsonText(const rapidjson::Value& value);
// The same for messages: a long text is cut.
std::string Shown(const rapidjson::Value& value);
// ['a', 'b']
std::string ShownList(std::span<const std::string_view> names);
// "int", "str", ... as Python names the type.
std::string TypeName(const rapidjson::Value& value);
// Without an exponent.
std::string Digits(double number);
// The candidate that is at most two edits away from `name`, or empty.
std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace msprobe::core
