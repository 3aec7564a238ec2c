#include "server/web/web_query.h"

#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "server/format/cat.h"

namespace msprobe::server {

std::string WebQuery::Text(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::string() : found->second;
}

absl::StatusOr<std::string> WebQuery::Required(const std::string& name) const {
  std::string value = Text(name);
  if (value.empty()) return absl::InvalidArgumentError(Cat("the parameter ", name, " is missing"));
  return value;
}

absl::StatusOr<uint32_t> WebQuery::Number(const std::string& name, uint32_t absent) const {
  const std::string text = Text(name);
  uint32_t value = absent;
  if (!text.empty() && !absl::SimpleAtoi(text, &value)) {
    return absl::InvalidArgumentError(Cat(name, "=", text, " is not a number from 0 to 4294967295"));
  }
  return value;
}

absl::StatusOr<v1::Rank> WebQuery::Rank() const {
  auto text = Required("rank");
  if (!text.ok()) return text.status();
  for (const auto& [prefix, kind] : {std::pair("rank", v1::Rank::RANK), std::pair("proc", v1::Rank::PROCESS)}) {
    uint32_t number = 0;
    if (!text->starts_with(prefix) || !absl::SimpleAtoi(text->substr(4), &number)) continue;
    v1::Rank rank;
    rank.set_kind(kind);
    rank.set_number(number);
    return rank;
  }
  return absl::InvalidArgumentError(Cat("rank=", *text, " is not of the form rank0 or proc123"));
}

absl::StatusOr<v1::Statistic> WebQuery::Statistic() const {
  const std::string text = Text("statistic");
  if (text.empty()) return v1::STATISTIC_NORM;
  v1::Statistic statistic = v1::STATISTIC_UNSPECIFIED;
  if (!v1::Statistic_Parse(Cat("STATISTIC_", absl::AsciiStrToUpper(text)), &statistic) ||
      statistic == v1::STATISTIC_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        Cat("statistic=", text, " is not known; there are max, min, mean, norm, variance, std, nan, inf, zero, ",
            "elements, zero_share, rms, abs_max and range"));
  }
  return statistic;
}

std::string LiteralPattern(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace msprobe::server
