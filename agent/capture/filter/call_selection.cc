#include "agent/capture/filter/call_selection.h"

namespace msprobe::capture {
namespace {

std::optional<core::Selector> SelectorOf(const std::string& text) {
  if (text.empty()) return std::nullopt;
  absl::StatusOr<core::Selector> selector = core::Selector::Parse(text);
  return selector.ok() ? std::optional(*std::move(selector)) : std::nullopt;
}

}  // namespace

CallSelection::CallSelection(const core::Config& config)
    : takes_apis_(config.level == core::Level::kL1 || config.level == core::Level::kMix),
      selector_(SelectorOf(config.select)) {}

bool CallSelection::TakesModule(const std::string& name) const {
  return !active() || selector_->Matches(core::Selector::OfModule(name));
}

bool CallSelection::TakesApi(const Api& api, const Name& around) {
  if (!active()) return true;
  const auto found = taken_.find(Place(&api, around));
  if (found != taken_.end()) return found->second;
  core::Selector::Call call = core::Selector::OfModule(around == nullptr ? std::string_view() : *around);
  call.api = api.name;
  const bool takes = selector_->Matches(call);
  taken_.emplace(Place(&api, around), takes);
  return takes;
}

}  // namespace msprobe::capture
