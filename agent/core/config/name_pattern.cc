#include "agent/core/config/name_pattern.h"

#include <re2/re2.h>

#include <utility>

#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr std::string_view kRegexBegin = "name-regex(";

}  // namespace

NamePattern::NamePattern(std::string substring, std::shared_ptr<const re2::RE2> regex)
    : substring_(std::move(substring)), regex_(std::move(regex)) {}

absl::StatusOr<NamePattern> NamePattern::Parse(std::string_view text) {
  if (!text.starts_with(kRegexBegin)) return NamePattern(std::string(text), nullptr);
  if (!text.ends_with(')')) {
    return absl::InvalidArgumentError(
        Cat("list is invalid: \"", text, "\" has no closing bracket; it should be name-regex(EXPRESSION)."));
  }
  const std::string_view expression = text.substr(kRegexBegin.size(), text.size() - kRegexBegin.size() - 1);
  auto regex = std::make_shared<re2::RE2>(re2::StringPiece(expression.data(), expression.size()), re2::RE2::Quiet);
  if (!regex->ok()) {
    return absl::InvalidArgumentError(Cat("list is invalid: in \"", text, "\" the regular expression is wrong (",
                                          regex->error(), "); it should be one that RE2 accepts."));
  }
  return NamePattern(std::string(), std::move(regex));
}

bool NamePattern::Matches(std::string_view full_name) const {
  if (regex_ == nullptr) return full_name.find(substring_) != std::string_view::npos;
  return re2::RE2::PartialMatch(re2::StringPiece(full_name.data(), full_name.size()), *regex_);
}

}  // namespace msprobe::core
