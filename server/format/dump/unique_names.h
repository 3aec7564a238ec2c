#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"

namespace msprobe::server {

// The names that a text had so far. Those that stand in the text as they are take 16 bytes each, whatever their length.
// Threads: one at a time. Ownership: the text outlives it.
class UniqueNames {
 public:
  explicit UniqueNames(std::string_view text) : text_(text) {}

  // False: it is there already.
  bool Add(std::string_view name) {
    if (names_.contains(name)) return false;
    const bool is_in_text = name.data() >= text_.data() && name.data() + name.size() <= text_.data() + text_.size();
    names_.insert(is_in_text ? name : copies_.emplace_back(name));
    return true;
  }

 private:
  const std::string_view text_;
  absl::flat_hash_set<std::string_view> names_;
  std::deque<std::string> copies_;  // of names with escapes
};

}  // namespace msprobe::server
