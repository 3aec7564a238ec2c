#include "server/shards/whole_series.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "server/analysis/series/sharded_step.h"
#include "server/format/series/shard_name.h"

namespace msprobe::server {
namespace {

// A tensor that some ranks have shards of, step by step.
class ShardedTensor {
 public:
  void Add(const ShardName& shard, uint32_t rank, const std::vector<SeriesPoint>& points) {
    for (std::string_view whole : WholeStatistics(shard.statistic)) statistics_.insert(whole);
    for (const SeriesPoint& point : points) {
      steps_[point.step].Add(shard.statistic, rank, shard.elements, point.value);
    }
  }

  const std::set<std::string_view>& statistics() const { return statistics_; }

  // The statistic of the whole at each step of which all shards are there; lacking: takes the other ones.
  std::vector<SeriesPoint> Whole(std::string_view statistic, uint64_t whole, std::set<uint32_t>& lacking) const {
    std::vector<SeriesPoint> points;
    for (const auto& [step, shards] : steps_) {
      if (const std::optional<double> value = shards.Of(statistic, whole)) {
        points.push_back({step, *value});
      } else if (shards.Has(statistic)) {
        lacking.insert(step);
      }
    }
    return points;
  }

 private:
  std::set<std::string_view> statistics_;  // of the whole
  std::map<uint32_t, ShardedStep> steps_;
};

}  // namespace

void WholeSeries::Note(std::string_view series, int64_t opened_unix_us) {
  const std::optional<ShardName> shard = ShardName::Of(series);
  if (!shard.has_value()) return;
  int64_t& opened = groups_[{std::string(shard->tensor), std::string(shard->group), shard->whole}];
  opened = std::max(opened, opened_unix_us);
}

void WholeSeries::Join(const std::string& name_glob, SeriesByName& series) const {
  if (groups_.empty()) return;
  const auto fits = [&](const std::string& name) {
    return name_glob.empty() || fnmatch(name_glob.c_str(), name.c_str(), 0) == 0;
  };
  std::vector<std::pair<int64_t, const Group*>> in_order;
  for (const auto& [group, opened] : groups_) in_order.emplace_back(opened, &group);
  std::stable_sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::map<Group, std::vector<SeriesByName::const_iterator>> shards;
  for (auto at = series.cbegin(); at != series.cend(); ++at) {
    const std::optional<ShardName> shard = ShardName::Of(at->first.first);
    if (!shard.has_value()) continue;
    shards[{std::string(shard->tensor), std::string(shard->group), shard->whole}].push_back(at);
  }
  struct Whole {
    std::vector<SeriesPoint> points;
    std::set<uint32_t> lacking;
  };
  using Key = std::tuple<std::string_view, std::string_view, uint32_t>;  // tensor, statistic, first rank
  std::map<Key, Whole> wholes;
  for (const auto& [opened, group] : in_order) {
    ShardedTensor tensor;
    uint32_t first_rank = 0;
    for (const auto& at : shards.at(*group)) {
      const ShardName shard = *ShardName::Of(at->first.first);
      first_rank = shard.Ranks().front();
      tensor.Add(shard, at->first.second, at->second);
    }
    for (std::string_view statistic : tensor.statistics()) {
      Whole& whole = wholes[{group->tensor, statistic, first_rank}];
      const std::vector<SeriesPoint> points = tensor.Whole(statistic, group->elements, whole.lacking);
      whole.points.insert(whole.points.end(), points.begin(), points.end());
    }
  }
  SeriesByName shown;
  for (auto& [key, whole] : wholes) {
    const auto& [tensor, statistic, first_rank] = key;
    SortPoints(whole.points);
    for (const SeriesPoint& point : whole.points) whole.lacking.erase(point.step);
    std::string name = WholeName(tensor, statistic);
    if (!whole.points.empty() && fits(name)) shown[{std::move(name), first_rank}] = whole.points;
  }
  const bool names_shards = name_glob.find(kShardMark) != std::string::npos;
  std::erase_if(series, [&](const auto& each) {
    const std::optional<ShardName> shard = ShardName::Of(each.first.first);
    if (!shard.has_value()) return false;
    if (!fits(each.first.first)) return true;
    if (names_shards) return false;
    const std::vector<std::string_view> of = WholeStatistics(shard->statistic);
    return std::any_of(of.begin(), of.end(), [&](std::string_view statistic) {
      const auto whole = wholes.find({shard->tensor, statistic, shard->Ranks().front()});
      return whole != wholes.end() && !whole->second.points.empty() && whole->second.lacking.empty();
    });
  });
  series.merge(shown);
}

std::set<std::string> ShownNames(const std::set<std::string>& stored) {
  std::map<std::string_view, std::set<std::string_view>> sent;  // statistics, by tensor
  for (const std::string& name : stored) {
    if (const auto shard = ShardName::Of(name)) sent[shard->tensor].insert(shard->statistic);
  }
  std::set<std::string> shown;
  for (const std::string& name : stored) {
    const std::optional<ShardName> shard = ShardName::Of(name);
    bool gives_whole = false;
    if (shard.has_value()) {
      const auto is_sent = [&](std::string_view needed) { return sent[shard->tensor].contains(needed); };
      for (std::string_view statistic : WholeStatistics(shard->statistic)) {
        if (!GiveWhole(statistic, is_sent)) continue;
        shown.insert(WholeName(shard->tensor, statistic));
        gives_whole = true;
      }
    }
    if (!gives_whole) shown.insert(name);
  }
  return shown;
}

}  // namespace msprobe::server
