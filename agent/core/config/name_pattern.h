#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace re2 {
class RE2;
}  // namespace re2

namespace msprobe::core {

// One element of `list`. It is a substring of full names, or name-regex(EXPRESSION): a regular expression in RE2 syntax
// that may match anywhere in the name; ^ and $ bind it to the ends.
//
// Immutable, and thread-safe.
class NamePattern {
 public:
  // InvalidArgument: what is wrong with the regular expression.
  static absl::StatusOr<NamePattern> Parse(std::string_view text);

  bool Matches(std::string_view full_name) const;

 private:
  NamePattern(std::string substring, std::shared_ptr<const re2::RE2> regex);

  std::string substring_;
  std::shared_ptr<const re2::RE2> regex_;  // null: substring_ decides
};

}  // namespace msprobe::core
