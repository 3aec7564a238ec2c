#include "server/analysis/series/layer_map.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/compare/place_pairs.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/analysis/series/step_columns.h"
#include "server/analysis/series/trend_walk.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"

namespace msprobe::server {
namespace {

using Place = StepTables::Place;

int Height(double value) { return std::isnan(value) ? 2 : std::isinf(value) ? 1 : 0; }

bool Before(double one, double other) {
  if (Height(one) != Height(other)) return Height(one) > Height(other);
  return std::abs(one) > std::abs(other);
}

void Keep(LayerMap::Cell& cell, const LayerMap::Cell& other) {
  if (other.known && (!cell.known || Before(other.value, cell.value))) cell = other;
}

using Tell = std::function<bool(size_t done, size_t total)>;

// Numbers names in the order in which they come.
class NumberedNames {
 public:
  uint32_t NumberOf(std::string_view name) {
    const auto [found, fresh] = numbers_.try_emplace(std::string(name), static_cast<uint32_t>(names_.size()));
    if (fresh) names_.push_back(found->first);
    return found->second;
  }
  std::vector<std::string>& names() { return names_; }

 private:
  absl::flat_hash_map<std::string, uint32_t> numbers_;
  std::vector<std::string> names_;
};

using PlaceRank = decltype(Place::second);

// One tensor of one rank.
std::string NameOf(const PlaceRank& rank, std::string_view tensor) {
  return Cat(rank.first, ".", rank.second, " ", tensor);
}

std::string NameOf(const PlaceRank& place) {
  v1::Rank rank;
  rank.set_kind(static_cast<v1::Rank::Kind>(place.first));
  rank.set_number(place.second);
  return RankName(rank);
}

// The golden side's values, to be subtracted.
class GoldenValues : public TrendSink {
 public:
  // partners: the target's rank for each golden one.
  GoldenValues(std::vector<uint32_t> steps, std::map<PlaceRank, PlaceRank> partners, Tell tell)
      : steps_(std::move(steps)), partners_(std::move(partners)), tell_(std::move(tell)) {}

  bool Begin(const TrendTensor& tensor, size_t) override {
    tensor_ = names_.NumberOf(NameOf(partners_.at(tensor.place.second), tensor.name));
    if (tensor_ == values_.size()) values_.emplace_back(steps_.size(), Known{});
    return true;
  }
  void Point(uint32_t step, uint32_t token, std::optional<double> value, std::optional<double>) override {
    if (!value) return;
    const auto at = static_cast<size_t>(std::lower_bound(steps_.begin(), steps_.end(), step) - steps_.begin());
    (token == 0 ? values_[tensor_][at] : later_[{tensor_, at, token}]) = Known{.there = true, .value = *value};
  }
  bool Progress(size_t done, size_t total) override { return tell_(done, total); }

  // `at`: index of the step; `rank`: the target's.
  std::optional<double> Find(const PlaceRank& rank, std::string_view tensor, size_t at, uint32_t token) {
    const uint32_t number = names_.NumberOf(NameOf(rank, tensor));
    Known known;
    if (token == 0 && number < values_.size()) known = values_[number][at];
    if (const auto found = later_.find({number, at, token}); token > 0 && found != later_.end()) known = found->second;
    return known.there ? std::optional<double>(known.value) : std::nullopt;
  }

 private:
  struct Known {
    bool there = false;
    double value = 0;
  };

  const std::vector<uint32_t> steps_;  // in order
  const std::map<PlaceRank, PlaceRank> partners_;
  const Tell tell_;
  NumberedNames names_;
  uint32_t tensor_ = 0;
  std::vector<std::vector<Known>> values_;  // by tensor, step; of token 0
  absl::flat_hash_map<std::tuple<uint32_t, size_t, uint32_t>, Known> later_;
};

// Two NaN, or two equal infinities, are no difference; one is.
double DifferenceOf(double target, double golden) {
  if (target == golden || (std::isnan(target) && std::isnan(golden))) return 0;
  return target - golden;
}

// Puts values into the columns of their steps, a row for each layer, or for each rank.
class Painter : public TrendSink {
 public:
  Painter(bool ranks, StepColumns columns, GoldenValues* golden, Tell tell)
      : ranks_(ranks), columns_(std::move(columns)), golden_(golden), tell_(std::move(tell)) {}

  bool Begin(const TrendTensor& tensor, size_t) override {
    name_ = std::string(tensor.name);
    rank_ = tensor.place.second;
    tensor_ = tensors_.NumberOf(name_);
    if (tensor_ == records_.size()) {
      records_.emplace_back(tensor.entry.name);
      layer_of_.push_back(ranks_ ? 0 : layers_.NumberOf(LayerNameOf(tensor.entry)));
    }
    layer_ = ranks_ ? layers_.NumberOf(NameOf(rank_)) : layer_of_[tensor_];
    const size_t row = ranks_ ? RankOrder(rank_) : tensor.row;
    if (layer_ == cells_.size()) {
      cells_.emplace_back(columns_.size());
      place_.push_back(row);
    }
    place_[layer_] = std::min(place_[layer_], row);
    return true;
  }

  void Point(uint32_t step, uint32_t token, std::optional<double> value, std::optional<double>) override {
    if (!value) return;
    if (golden_ != nullptr) {
      const std::optional<double> golden = golden_->Find(rank_, name_, columns_.IndexOf(step), token);
      if (!golden) return;
      value = DifferenceOf(*value, *golden);
    }
    // What a float cannot hold would look infinite.
    constexpr double kMax = std::numeric_limits<float>::max();
    if (std::isfinite(*value)) value = std::clamp(*value, -kMax, kMax);
    Keep(cells_[layer_][columns_.ColumnOf(step)], {true, static_cast<float>(*value), step, tensor_});
  }

  bool Progress(size_t done, size_t total) override { return tell_(done, total); }

  LayerMap Take(const LayerMapQuestion& question) {
    LayerMap map;
    for (size_t i = 0; i < records_.size(); ++i) {
      map.tensors.push_back({std::move(tensors_.names()[i]), std::move(records_[i])});
    }
    for (size_t i = 0; i < columns_.size(); ++i) map.columns.push_back({columns_.first(i), columns_.last(i)});
    std::vector<size_t> order(cells_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) { return place_[a] < place_[b]; });
    for (size_t layer : order) map.layers.push_back(layers_.names()[layer]);
    if (order.empty()) return map;
    const size_t first = std::min<size_t>(question.first_layer, order.size() - 1);
    const size_t last = std::clamp<size_t>(question.last_layer, first, order.size() - 1);
    const size_t each = (last - first + question.max_rows) / question.max_rows;
    for (size_t begin = first; begin <= last; begin += each) {
      const size_t end = std::min(begin + each - 1, last);
      map.rows.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
      std::vector<LayerMap::Cell> row(columns_.size());
      for (size_t at = begin; at <= end; ++at) {
        for (size_t column = 0; column < row.size(); ++column) {
          LayerMap::Cell& cell = cells_[order[at]][column];
          cell.layer = static_cast<uint32_t>(at);
          Keep(row[column], cell);
        }
      }
      map.cells.insert(map.cells.end(), row.begin(), row.end());
    }
    return map;
  }

 private:
  // Ranks before processes.
  static size_t RankOrder(const PlaceRank& rank) {
    return (rank.first == v1::Rank::RANK ? 0 : size_t{1} << 32) + rank.second;
  }

  const bool ranks_;
  const StepColumns columns_;
  GoldenValues* const golden_;  // null: none
  const Tell tell_;
  NumberedNames tensors_, layers_;
  // Of the tensor whose points come.
  std::string name_;
  PlaceRank rank_;
  uint32_t tensor_ = 0, layer_ = 0;
  std::vector<std::string> records_;                // by tensor
  std::vector<uint32_t> layer_of_;                  // by tensor; without meaning for ranks
  std::vector<size_t> place_;                       // by layer: its first tensor's among those of a step
  std::vector<std::vector<LayerMap::Cell>> cells_;  // by layer, column
};

class Mapping {
 public:
  Mapping(const StepTables& target, const StepTables* golden, const LayerMapQuestion& question, const Tell& tell)
      : target_(target), golden_(golden), question_(question), tell_(tell) {}

  absl::StatusOr<LayerMap> Run(int threads, const std::function<bool()>& cancelled) {
    auto found = Pairs();
    if (!found.ok()) return found.status();
    const size_t steps = StepsOf(*found);
    auto pairs = Thinned(*std::move(found));
    if (!pairs.ok()) return pairs.status();
    const size_t total = pairs->size() * (golden_ != nullptr ? 2 : 1);

    std::vector<uint32_t> ours, theirs;
    std::vector<TrendStop> stops, golden_stops;
    std::map<PlaceRank, PlaceRank> partners;
    for (const PlacePair& pair : *pairs) {
      partners[pair.golden.second] = pair.target.second;
      ours.push_back(pair.target.first);
      theirs.push_back(pair.golden.first);
      stops.push_back({pair.target, std::nullopt});
      golden_stops.push_back({pair.golden, std::nullopt});
    }
    const TrendQuestion walk{question_.tensors, {question_.statistic}, threads, cancelled, true};
    std::optional<GoldenValues> values;
    if (golden_ != nullptr) {
      theirs.erase(std::unique(theirs.begin(), theirs.end()), theirs.end());
      values.emplace(theirs, std::move(partners), [&](size_t done, size_t) { return tell_(done, total); });
      absl::Status status = WalkTrend(walk, *golden_, nullptr, std::move(golden_stops), *values);
      if (!status.ok()) return status;
    }
    const size_t before = golden_ != nullptr ? pairs->size() : 0;
    Painter painter(!question_.rank.has_value(), StepColumns(ours, question_.max_columns), values ? &*values : nullptr,
                    [&](size_t done, size_t) { return tell_(before + done, total); });
    if (absl::Status status = WalkTrend(walk, target_, nullptr, std::move(stops), painter); !status.ok()) return status;
    LayerMap map = painter.Take(question_);
    map.steps = steps;
    map.steps_read = StepsOf(*pairs);
    return map;
  }

 private:
  static size_t StepsOf(const std::vector<PlacePair>& pairs) {
    size_t steps = 0;
    for (size_t i = 0; i < pairs.size(); ++i) steps += i == 0 || pairs[i].target.first != pairs[i - 1].target.first;
    return steps;
  }

  // The wanted rank and steps, in order of steps. Without a golden side both places of a pair are the target's.
  absl::StatusOr<std::vector<PlacePair>> Pairs() const {
    std::optional<PlaceRank> rank;
    if (question_.rank.has_value()) rank.emplace(question_.rank->kind(), question_.rank->number());
    PlaceScope scope{{{question_.first_step, question_.last_step}}, {}};
    std::vector<PlacePair> pairs;
    if (golden_ == nullptr) {
      if (rank.has_value()) scope.ranks.push_back(*rank);
      auto places = PlacesIn(target_, scope);
      if (!places.ok()) return places.status();
      for (const Place& place : *places) pairs.push_back({place, place});
      return pairs;
    }
    // Every rank stays in: a process has another number on the other side.
    std::vector<UnpairedPlace> unpaired;
    auto all = PairPlaces(target_, *golden_, scope, unpaired);
    if (!all.ok()) return all.status();
    for (const PlacePair& pair : *all) {
      if (!rank.has_value() || pair.target.second == *rank) pairs.push_back(pair);
    }
    if (pairs.empty()) {
      return absl::InvalidArgumentError(Cat("the run ", golden_->name(), " has nothing of this rank"));
    }
    return pairs;
  }

  // As many steps as max_values allow, judged by how many such tensors the last one has.
  absl::StatusOr<std::vector<PlacePair>> Thinned(std::vector<PlacePair> pairs) const {
    auto step = target_.Read(pairs.back().target, {.stacks = false, .construct = false});
    if (!step.ok()) return step.status();
    const StepTable& table = (*step)->table();
    const auto wanted = [this](const Row& row) {
      return row.is_tensor && fnmatch(question_.tensors.c_str(), std::string(row.name).c_str(), 0) == 0;
    };
    const auto tensors = static_cast<size_t>(std::count_if(table.rows.begin(), table.rows.end(), wanted));
    // All values of the golden side are kept until the target's come.
    const size_t max_values = golden_ == nullptr ? question_.max_values : question_.max_values / 2;
    const size_t max_pairs = std::max<size_t>(1, max_values / std::max<size_t>(1, tensors));
    if (pairs.size() <= max_pairs) return pairs;
    const size_t each = (pairs.size() + max_pairs - 1) / max_pairs;
    // Steps with NaN or infinity may be as many again.
    size_t marked = 0, step_number = 0;
    std::vector<PlacePair> kept;
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (i > 0 && pairs[i].target.first != pairs[i - 1].target.first) ++step_number;
      const bool non_finite = marked < max_pairs && target_.HasNonFinite(pairs[i].target);
      const bool regular = step_number % each == 0 || pairs[i].target.first == pairs.back().target.first;
      if (!regular && non_finite) ++marked;
      if (regular || non_finite) kept.push_back(pairs[i]);
    }
    return kept;
  }

  const StepTables& target_;
  const StepTables* const golden_;  // null: there is none
  const LayerMapQuestion& question_;
  const Tell& tell_;
};

}  // namespace

absl::StatusOr<LayerMap> MapLayers(const StepTables& target, const StepTables* golden, const LayerMapQuestion& question,
                                   int threads, const std::function<bool()>& cancelled,
                                   const std::function<bool(size_t done, size_t total)>& tell) {
  if (question.tensors.empty()) return absl::InvalidArgumentError("tensors is empty: name them, e.g. *.output.0");
  return Mapping(target, golden, question, tell).Run(threads, cancelled);
}

}  // namespace msprobe::server
