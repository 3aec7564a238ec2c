#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace msprobe::server {

// What trend databases call things, by mindstudio-probe's rules.

// What a record computed. Numbers are places in kTrendMetrics.
enum class TrendMetric : uint8_t { kForward, kBackward, kRecompute, kParametersGrad };
inline constexpr const char* kTrendMetrics[] = {"forward", "backward", "recompute", "parameters_grad"};

// A record's name without its direction and its number: what stays the same from call to call.
struct TrendRecord {
  TrendMetric metric = TrendMetric::kForward;
  std::string name;  // "Module.fc.Linear" of "Module.fc.Linear.backward.3"
  uint64_t call = 0;
};
// Nothing: the name says neither direction nor gradients.
std::optional<TrendRecord> TrendRecordOf(std::string_view full_name);

// A word by which a page narrows its list of targets.
struct TrendTag {
  std::string name;
  std::string_view category;  // "default", "index", "layer", "module" or "function"

  auto operator<=>(const TrendTag&) const = default;  // NOLINT(modernize-use-nullptr): it has no pointer
};
// Of a tensor of a record: "Module.layers.3.fc.Linear.input.0". Sorted.
std::vector<TrendTag> TagsOfTensor(std::string_view target);
// Of what a training monitor watches: "layers.3.fc.weight". Sorted.
std::vector<TrendTag> TagsOfWatched(std::string_view target);

}  // namespace msprobe::server
