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
  const auto [found, is_new] = answers_.try_emplace(Place(&api, around.get()));
  if (!is_new) return found->second.takes;
  core::Selector::Call call = core::Selector::OfModule(around == nullptr ? std::string_view() : *around);
  call.api = api.name;
  found->second = {.around = around, .takes = selector_->Matches(call)};
  return found->second.takes;
}

}  // namespace msprobe::capture
