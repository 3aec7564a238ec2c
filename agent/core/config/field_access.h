#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/time/time.h"
#include "agent/core/config/fields.h"
#include "agent/core/config/json_values.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {

// FieldAccess for the usual kinds of members. kPath names the member: &Config::run, or a member of a member,
// &Config::session, &SessionConfig::server. A member of LoadConfig is that of Config.load, absent where load is.

template <typename Member>
struct PartOf;
template <typename Class, typename Type>
struct PartOf<Type Class::*> {
  using Owner = Class;
};

template <auto kFirst, auto... kRest>
auto* MemberOf(auto& config) {
  if constexpr (std::is_same_v<typename PartOf<decltype(kFirst)>::Owner, LoadConfig>) {
    return config.load.has_value() ? &((*config.load).*kFirst) : nullptr;
  } else {
    return &((config.*kFirst).*....*kRest);
  }
}

// The reader that fits the type of the member.
inline absl::Status ReadInto(const rapidjson::Value& value, const Field& field, bool* out) {
  return ReadBool(value, field.name, out);
}
inline absl::Status ReadInto(const rapidjson::Value& value, const Field& field, std::optional<bool>* out) {
  return ReadBool(value, field.name, &out->emplace());
}
inline absl::Status ReadInto(const rapidjson::Value& value, const Field& field, std::string* out) {
  return ReadString(value, field.name, out);
}
inline absl::Status ReadInto(const rapidjson::Value& value, const Field& field, std::vector<std::string>* out) {
  return ReadStringList(value, field.name, out);
}
inline absl::Status ReadInto(const rapidjson::Value& value, const Field& field, std::vector<uint32_t>* out) {
  return ReadRankOrStep(value, field.name, out);
}
inline absl::Status ReadInto(const rapidjson::Value& value, const Field& field, uint64_t* out) {
  return ReadWholeNumber(value, field.name, out);
}

template <typename Type>
FieldValue ValueOf(const Type& member) {
  return member;
}
inline FieldValue ValueOf(uint64_t member) { return static_cast<int64_t>(member); }
inline FieldValue ValueOf(const std::optional<bool>& member) {
  return member.has_value() ? FieldValue(*member) : FieldValue();
}

inline FieldValue ValueOf(const std::optional<CaptureSchedule>& member) {
  return member.has_value() ? FieldValue(*member) : FieldValue();
}

template <auto... kPath>
FieldValue GivePlain(const Config& config, const Field&) {
  const auto* const member = MemberOf<kPath...>(config);
  return member == nullptr ? FieldValue() : ValueOf(*member);
}

template <auto... kPath>
constexpr FieldAccess kPlain = {
    .read = [](const rapidjson::Value& value, const Field& field,
               Config* config) { return ReadInto(value, field, MemberOf<kPath...>(*config)); },
    .give = &GivePlain<kPath...>};

// At least 1.
template <auto... kPath>
constexpr FieldAccess kCount = {
    .read =
        [](const rapidjson::Value& value, const Field& field, Config* config) {
          uint64_t count = 0;
          if (absl::Status status = ReadWholeNumber(value, field.name, &count); !status.ok()) return status;
          if (count == 0) {
            return absl::InvalidArgumentError(
                Cat(field.name, " is invalid, it should be at least 1, currently it is 0."));
          }
          *MemberOf<kPath...>(*config) = count;
          return absl::OkStatus();
        },
    .give = &GivePlain<kPath...>};

// A directory that exists. An empty text is given back as absent.
template <auto... kPath>
constexpr FieldAccess kDirectory = {
    .read = [](const rapidjson::Value& value, const Field& field,
               Config* config) { return ReadDirectory(value, field.name, MemberOf<kPath...>(*config)); },
    .give =
        [](const Config& config, const Field&) {
          const std::string* const member = MemberOf<kPath...>(config);
          return member == nullptr || member->empty() ? FieldValue() : FieldValue(*member);
        }};

// An enum, or a bool that has two names: form.choices are its values in order.
template <auto... kPath>
absl::Status ReadChoiceInto(const rapidjson::Value& value, const Field& field, Config* config) {
  auto* const member = MemberOf<kPath...>(*config);
  auto index = static_cast<size_t>(*member);
  absl::Status status = ReadChoice(value, field.name, field.form.choices, &index);
  *member = static_cast<std::remove_reference_t<decltype(*member)>>(index);
  return status;
}
template <auto... kPath>
FieldValue GiveChoice(const Config& config, const Field& field) {
  return std::string(field.form.choices[static_cast<size_t>(*MemberOf<kPath...>(config))]);
}
template <auto... kPath>
constexpr FieldAccess kChoice = {.read = &ReadChoiceInto<kPath...>, .give = &GiveChoice<kPath...>};

// A number of MiB, kept in bytes.
template <auto... kPath>
constexpr FieldAccess kMebibytes = {
    .read =
        [](const rapidjson::Value& value, const Field& field, Config* config) {
          double mebibytes = 0;
          absl::Status status = ReadNumber(value, field.name, field.form.low, field.form.high, &mebibytes);
          if (status.ok()) *MemberOf<kPath...>(*config) = static_cast<uint64_t>(mebibytes * (1 << 20));
          return status;
        },
    .give = [](const Config& config,
               const Field&) { return FieldValue(static_cast<double>(*MemberOf<kPath...>(config)) / (1 << 20)); }};

// A number of seconds or milliseconds, kept as a duration.
template <int64_t kInSecond, auto... kPath>
constexpr FieldAccess kTime = {
    .read =
        [](const rapidjson::Value& value, const Field& field, Config* config) {
          double time = 0;
          absl::Status status = ReadNumber(value, field.name, field.form.low, field.form.high, &time);
          if (status.ok()) *MemberOf<kPath...>(*config) = absl::Seconds(time) / kInSecond;
          return status;
        },
    .give = [](const Config& config,
               const Field&) { return FieldValue(absl::ToDoubleSeconds(*MemberOf<kPath...>(config) * kInSecond)); }};
template <auto... kPath>
constexpr FieldAccess kSeconds = kTime<1, kPath...>;
template <auto... kPath>
constexpr FieldAccess kMilliseconds = kTime<1000, kPath...>;

}  // namespace msprobe::core
