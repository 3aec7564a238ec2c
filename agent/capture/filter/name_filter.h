#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/config/config.h"
#include "agent/core/config/name_pattern.h"

namespace msprobe::capture {

// `scope` and `list` of the configuration, applied to full names in the order in which records come.
//
// scope is a closed range: it opens at its first name and closes behind its second. An API opens or closes it when it
// is checked; a module opens it when it begins and closes it when it ends, so a scope from a module to itself holds all
// that runs inside. list keeps names that one of its patterns matches; at level mix also everything inside a module
// that it keeps.
//
// Not thread-safe: the recorder guards it.
class NameFilter {
 public:
  explicit NameFilter(const core::Config& config);

  // False: nothing is configured, everything passes and nothing needs to be called.
  bool active() const { return !scope_.empty() || !list_.empty(); }

  // Whether the record is kept. Called once where a call begins and once where it ends.
  bool Check(std::string_view full_name);

  void BeginModule(std::string_view full_name);
  void EndModule(std::string_view full_name);
  void Reset();  // at the end of a step

 private:
  bool Listed(std::string_view full_name) const;

  const bool mix_;
  const std::vector<std::string> scope_;
  const std::vector<core::NamePattern> list_;
  bool in_scope_ = false;
  std::set<std::string, std::less<>> open_listed_modules_;
};

}  // namespace msprobe::capture
