#include "agent/capture/filter/name_filter.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace msprobe::capture {
namespace {

bool IsModule(std::string_view name) {
  return absl::StartsWith(absl::string_view(name.data(), name.size()), "Module.");
}

// Those that parse; the configuration has refused others.
std::vector<core::NamePattern> PatternsOf(const std::vector<std::string>& list) {
  std::vector<core::NamePattern> patterns;
  for (const std::string& text : list) {
    if (absl::StatusOr<core::NamePattern> pattern = core::NamePattern::Parse(text); pattern.ok()) {
      patterns.push_back(*std::move(pattern));
    }
  }
  return patterns;
}

}  // namespace

NameFilter::NameFilter(const core::Config& config)
    : mix_(config.level == core::Level::kMix), scope_(config.scope), list_(PatternsOf(config.list)) {}

bool NameFilter::Listed(std::string_view full_name) const {
  return list_.empty() || std::any_of(list_.begin(), list_.end(),
                                      [&](const core::NamePattern& pattern) { return pattern.Matches(full_name); });
}

bool NameFilter::Check(std::string_view full_name) {
  const bool toggles = !scope_.empty() && !IsModule(full_name);
  if (toggles && full_name == scope_[0]) in_scope_ = true;
  const bool kept = (scope_.empty() || in_scope_) && (!open_listed_modules_.empty() || Listed(full_name));
  if (toggles && full_name == scope_[1]) in_scope_ = false;
  return kept;
}

void NameFilter::BeginModule(std::string_view full_name) {
  if (!scope_.empty() && full_name == scope_[0]) in_scope_ = true;
  if (mix_ && !list_.empty() && Listed(full_name)) open_listed_modules_.emplace(full_name);
}

void NameFilter::EndModule(std::string_view full_name) {
  if (!scope_.empty() && full_name == scope_[1]) in_scope_ = false;
  if (const auto found = open_listed_modules_.find(full_name); found != open_listed_modules_.end()) {
    open_listed_modules_.erase(found);
  }
}

void NameFilter::Reset() {
  in_scope_ = false;
  open_listed_modules_.clear();
}

}  // namespace msprobe::capture
