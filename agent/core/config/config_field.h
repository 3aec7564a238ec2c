#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/core/config/config.h"
#include "rapidjson/document.h"

namespace msprobe::core {

// Readers of single values of config.json. Each gives InvalidArgument that names the field, what was given and what is
// allowed. `value` may be null (the field is absent, or null): then the default stays.

absl::Status ReadString(const rapidjson::Value* value, std::string_view field, std::string* out);
absl::Status ReadBool(const rapidjson::Value* value, std::string_view field, bool* out);
absl::Status ReadStringList(const rapidjson::Value* value, std::string_view field, std::vector<std::string>* out);
// A number from `low` to `high`.
absl::Status ReadNumber(const rapidjson::Value* value, std::string_view field, double low, double high, double* out);
// At least 0.
absl::Status ReadWholeNumber(const rapidjson::Value* value, std::string_view field, uint64_t* out);
// One of `allowed`; gives its index.
absl::Status ReadChoice(const rapidjson::Value* value, std::string_view field,
                        std::span<const std::string_view> allowed, size_t* out);
// Elements 3, "3" or "3-5", from 0 to 1000000; sorted, each once.
absl::Status ReadRankOrStep(const rapidjson::Value* value, std::string_view field, std::vector<uint32_t>* out);
absl::Status AddRankOrStep(std::string_view text, std::string_view field, std::vector<uint32_t>* out);
void SortUnique(std::vector<uint32_t>* numbers);
absl::Status ReadDataMode(const rapidjson::Value* value, Config* config);
absl::Status ReadSlice(const rapidjson::Value* value, std::vector<SliceRule>* out);
// Two full names as the level has them.
absl::Status ReadScope(const rapidjson::Value* value, Level level, std::vector<std::string>* out);

// Not empty, and each the forward name of a module: "Module.layers.0.Linear.forward.0".
absl::Status CheckLoadModules(const std::vector<std::string>& modules);

// As JSON, for messages; cut where it is long.
std::string Shown(const rapidjson::Value& value);
// ['a', 'b']
std::string ShownList(std::span<const std::string_view> names);
// The candidate that is at most two edits away from `name`, or empty.
std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace msprobe::core
