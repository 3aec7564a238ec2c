#include "server/analysis/series/sharded_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kUpdateRatio = "";

// A statistic of the whole, and those of the shards that it needs; empty: no more.
struct Needs {
  std::string_view whole;
  std::array<std::string_view, 3> of_shards;
};
constexpr std::array kNeeds = {
    Needs{"max", {"max"}},
    Needs{"min", {"min"}},
    Needs{"abs_max", {"abs_max"}},
    Needs{"range", {"range", "max", "min"}},
    Needs{"norm", {"norm"}},
    Needs{"nan", {"nan"}},
    Needs{"inf", {"inf"}},
    Needs{"mean", {"mean"}},
    Needs{"zero_share", {"zero_share"}},
    Needs{"underflow_bf16", {"underflow_bf16"}},
    Needs{"underflow_fp16", {"underflow_fp16"}},
    Needs{"underflow_e4m3", {"underflow_e4m3"}},
    Needs{"underflow_e5m2", {"underflow_e5m2"}},
    Needs{"to_zero_bf16", {"to_zero_bf16"}},
    Needs{"to_zero_fp16", {"to_zero_fp16"}},
    Needs{"rms", {"rms"}},
    Needs{"variance", {"variance", "mean"}},
    Needs{kUpdateRatio, {"change", "before"}},
};

const Needs* NeedsOf(std::string_view statistic) {
  const auto found =
      std::find_if(kNeeds.begin(), kNeeds.end(), [&](const Needs& each) { return each.whole == statistic; });
  return found == kNeeds.end() ? nullptr : &*found;
}

// The mean of f(value), by elements.
template <typename Shards, typename Function>
double Mean(const Shards& shards, Function f) {
  double sum = 0, elements = 0;
  for (const auto& [rank, shard] : shards) {
    sum += shard.elements * f(shard.value);
    elements += shard.elements;
  }
  return sum / elements;
}

template <typename Shards, typename Function>
double Sum(const Shards& shards, Function f) {
  double sum = 0;
  for (const auto& [rank, shard] : shards) sum += f(shard.value);
  return sum;
}

template <typename Shards>
double Extreme(const Shards& shards, bool greatest) {
  double extreme = shards.begin()->second.value;
  for (const auto& [rank, shard] : shards) {
    if (std::isnan(shard.value)) return kNan;
    extreme = greatest ? std::max(extreme, shard.value) : std::min(extreme, shard.value);
  }
  return extreme;
}

double Same(double value) { return value; }
double Square(double value) { return value * value; }

}  // namespace

void ShardedStep::Add(std::string_view statistic, uint32_t rank, uint64_t elements, double value) {
  auto found = statistics_.find(statistic);
  if (found == statistics_.end()) found = statistics_.emplace(std::string(statistic), Shards()).first;
  Shards& shards = found->second;
  if (shards.contains(rank)) {
    values_ -= shards.size();
    shards.clear();
  }
  shards[rank] = {.elements = static_cast<double>(elements), .value = value};
  ++values_;
}

const ShardedStep::Shards* ShardedStep::Whole(std::string_view statistic, uint64_t whole) const {
  const auto found = statistics_.find(statistic);
  if (found == statistics_.end()) return nullptr;
  double elements = 0;
  for (const auto& [rank, shard] : found->second) elements += shard.elements;
  return elements == static_cast<double>(whole) ? &found->second : nullptr;
}

std::optional<double> ShardedStep::Of(std::string_view statistic, uint64_t whole) const {
  const Needs* const needs = NeedsOf(statistic);
  if (needs == nullptr) return std::nullopt;
  std::array<const Shards*, 3> of_shards = {};
  for (size_t i = 0; i < needs->of_shards.size() && !needs->of_shards[i].empty(); ++i) {
    of_shards[i] = Whole(needs->of_shards[i], whole);
    if (of_shards[i] == nullptr) return std::nullopt;
  }
  const auto [first, second, third] = of_shards;
  if (statistic == "max" || statistic == "abs_max") return Extreme(*first, true);
  if (statistic == "min") return Extreme(*first, false);
  if (statistic == "range") return Extreme(*second, true) - Extreme(*third, false);
  if (statistic == "norm") return std::sqrt(Sum(*first, Square));
  if (statistic == "nan" || statistic == "inf") return Sum(*first, Same);
  if (statistic == "rms") return std::sqrt(Mean(*first, Square));
  if (statistic == "variance") {
    const double mean = Mean(*second, Same);
    return Mean(*first, Same) + Mean(*second, [mean](double value) { return Square(value - mean); });
  }
  if (statistic == kUpdateRatio) {
    const double before = Mean(*second, Square);
    return before == 0 ? std::nullopt : std::optional<double>(std::sqrt(Mean(*first, Square) / before));
  }
  return Mean(*first, Same);
}

bool ShardedStep::Has(std::string_view statistic) const {
  return GiveWhole(statistic, [this](std::string_view needed) { return statistics_.contains(needed); });
}

std::vector<uint32_t> ShardedStep::Silent(const std::vector<uint32_t>& ranks) const {
  std::vector<uint32_t> silent;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(silent), [this](uint32_t rank) {
    return std::none_of(statistics_.begin(), statistics_.end(),
                        [rank](const auto& statistic) { return statistic.second.contains(rank); });
  });
  return silent;
}

std::vector<std::string_view> WholeStatistics(std::string_view statistic) {
  std::vector<std::string_view> wholes;
  for (const Needs& each : kNeeds) {
    const auto& needed = each.of_shards;
    if (std::find(needed.begin(), needed.end(), statistic) != needed.end()) wholes.push_back(each.whole);
  }
  return wholes;
}

bool GiveWhole(std::string_view statistic, absl::FunctionRef<bool(std::string_view)> is_sent) {
  const Needs* const needs = NeedsOf(statistic);
  return needs != nullptr && std::all_of(needs->of_shards.begin(), needs->of_shards.end(),
                                         [&](std::string_view needed) { return needed.empty() || is_sent(needed); });
}

std::string WholeName(std::string_view tensor, std::string_view statistic) {
  return statistic == kUpdateRatio ? std::string(tensor) : Cat(tensor, ":", statistic);
}

std::vector<std::string> WholesOf(std::string_view series) {
  std::vector<std::string> wholes;
  const std::optional<ShardName> shard = ShardName::Of(series);
  if (!shard.has_value()) return wholes;
  for (std::string_view statistic : WholeStatistics(shard->statistic)) {
    wholes.push_back(WholeName(shard->tensor, statistic));
  }
  return wholes;
}

}  // namespace msprobe::server
