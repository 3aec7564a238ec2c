#include "server/query/layer_map.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"
#include "server/query/opened_source.h"
#include "server/query/step_columns.h"
#include "server/query/trend_walk.h"

namespace msprobe::server {
namespace {

using Place = OpenedSource::Place;

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
class Names {
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

// The golden side's values, to be subtracted.
class GoldenValues : public TrendSink {
 public:
  GoldenValues(const std::vector<uint32_t>& steps, Tell tell) : steps_(steps), tell_(std::move(tell)) {}

  bool Begin(const TrendTensor& tensor, size_t) override {
    tensor_ = names_.NumberOf(tensor.name);
    if (tensor_ == values_.size()) values_.emplace_back(steps_.size(), Known{});
    return true;
  }
  void Point(uint32_t step, uint32_t token, std::optional<double> value, std::optional<double>) override {
    if (!value) return;
    const auto at = static_cast<size_t>(std::lower_bound(steps_.begin(), steps_.end(), step) - steps_.begin());
    (token == 0 ? values_[tensor_][at] : later_[{tensor_, at, token}]) = {true, *value};
  }
  bool Progress(size_t done, size_t total) override { return tell_(done, total); }

  // `at`: index of the step.
  std::optional<double> Find(std::string_view tensor, size_t at, uint32_t token) {
    const uint32_t number = names_.NumberOf(tensor);
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
  const Tell tell_;
  Names names_;
  uint32_t tensor_ = 0;
  std::vector<std::vector<Known>> values_;  // by tensor, step; of token 0
  absl::flat_hash_map<std::tuple<uint32_t, size_t, uint32_t>, Known> later_;
};

// Two NaN, or two equal infinities, are no difference; one is.
double Difference(double target, double golden) {
  if (target == golden || (std::isnan(target) && std::isnan(golden))) return 0;
  return target - golden;
}

// Puts values into the columns of their steps, a row for each layer.
class Painter : public TrendSink {
 public:
  Painter(StepColumns columns, GoldenValues* golden, Tell tell)
      : columns_(std::move(columns)), golden_(golden), tell_(std::move(tell)) {}

  bool Begin(const TrendTensor& tensor, size_t) override {
    name_ = std::string(tensor.name);
    tensor_ = tensors_.NumberOf(name_);
    if (tensor_ == layer_of_.size()) {
      records_.emplace_back(tensor.entry.name);
      layer_of_.push_back(layers_.NumberOf(LayerNameOf(tensor.entry)));
      if (layer_of_.back() == cells_.size()) {
        cells_.emplace_back(columns_.size());
        place_.push_back(tensor.row);
      }
    }
    size_t& place = place_[layer_of_[tensor_]];
    place = std::min(place, tensor.row);
    return true;
  }

  void Point(uint32_t step, uint32_t token, std::optional<double> value, std::optional<double>) override {
    if (!value) return;
    if (golden_ != nullptr) {
      const std::optional<double> golden = golden_->Find(name_, columns_.IndexOf(step), token);
      if (!golden) return;
      value = Difference(*value, *golden);
    }
    // What a float cannot hold would look infinite.
    constexpr double kMost = std::numeric_limits<float>::max();
    if (std::isfinite(*value)) value = std::clamp(*value, -kMost, kMost);
    Keep(cells_[layer_of_[tensor_]][columns_.ColumnOf(step)], {true, static_cast<float>(*value), step, tensor_});
  }

  bool Progress(size_t done, size_t total) override { return tell_(done, total); }

  LayerMap Take(const LayerMapRequest& request) {
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
    const size_t first = std::min<size_t>(request.first_layer, order.size() - 1);
    const size_t last = std::clamp<size_t>(request.last_layer, first, order.size() - 1);
    const size_t each = (last - first + request.rows) / request.rows;
    for (size_t begin = first; begin <= last; begin += each) {
      const size_t end = std::min(begin + each - 1, last);
      map.rows.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
      std::vector<LayerMap::Cell> row(columns_.size());
      for (size_t at = begin; at <= end; ++at) {
        for (size_t column = 0; column < row.size(); ++column) Keep(row[column], cells_[order[at]][column]);
      }
      map.cells.insert(map.cells.end(), row.begin(), row.end());
    }
    return map;
  }

 private:
  const StepColumns columns_;
  GoldenValues* const golden_;  // null: none
  const Tell tell_;
  Names tensors_, layers_;
  std::string name_;  // of the tensor whose points come
  uint32_t tensor_ = 0;
  std::vector<std::string> records_;                // by tensor
  std::vector<uint32_t> layer_of_;                  // by tensor
  std::vector<size_t> place_;                       // by layer: its first tensor's among those of a step
  std::vector<std::vector<LayerMap::Cell>> cells_;  // by layer, column
};

class Mapping {
 public:
  Mapping(const AnalysisContext& context, const LayerMapRequest& request, const std::function<bool()>& cancelled,
          const Tell& tell)
      : context_(context), request_(request), cancelled_(cancelled), tell_(tell) {}

  absl::StatusOr<LayerMap> Run() {
    auto target = Open(request_.run);
    if (!target.ok()) return target.status();
    std::optional<OpenedSource> golden;
    if (!request_.golden.empty()) {
      auto opened = Open(request_.golden);
      if (!opened.ok()) return opened.status();
      golden = *std::move(opened);
    }
    auto found = Pairs(*target, golden);
    if (!found.ok()) return found.status();
    const size_t steps = found->size();
    auto pairs = Thinned(*target, *std::move(found));
    if (!pairs.ok()) return pairs.status();
    const size_t total = pairs->size() * (golden ? 2 : 1);

    std::vector<uint32_t> ours, theirs;
    std::vector<TrendStop> stops, golden_stops;
    for (const PlacePair& pair : *pairs) {
      ours.push_back(pair.target.first);
      theirs.push_back(pair.golden.first);
      stops.push_back({pair.target, std::nullopt});
      golden_stops.push_back({pair.golden, std::nullopt});
    }
    const std::vector<Statistic> statistics = {request_.statistic};
    TrendWalk walk(context_, request_.tensors, statistics, cancelled_);
    std::optional<GoldenValues> values;
    if (golden) {
      values.emplace(theirs, [&](size_t done, size_t) { return tell_(done, total); });
      absl::Status status = walk.Run(*golden, nullptr, std::move(golden_stops), *values);
      if (!status.ok()) return status;
    }
    const size_t before = golden ? pairs->size() : 0;
    Painter painter(StepColumns(ours, request_.columns), values ? &*values : nullptr,
                    [&](size_t done, size_t) { return tell_(before + done, total); });
    if (absl::Status status = walk.Run(*target, nullptr, std::move(stops), painter); !status.ok()) return status;
    LayerMap map = painter.Take(request_);
    map.steps = steps;
    map.steps_read = pairs->size();
    return map;
  }

 private:
  absl::StatusOr<OpenedSource> Open(const std::string& run) const {
    v1::Source source;
    source.set_run(run);
    return OpenedSource::Open(source, context_);
  }

  // Of the wanted rank and steps, in order of steps; without a golden side each step twice.
  absl::StatusOr<std::vector<PlacePair>> Pairs(const OpenedSource& target,
                                               const std::optional<OpenedSource>& golden) const {
    v1::Scope scope;
    v1::Scope::Steps& steps = *scope.add_steps();
    steps.set_first(request_.first_step);
    steps.set_last(request_.last_step);
    std::vector<PlacePair> pairs;
    if (!golden) {
      *scope.add_ranks() = request_.rank;
      auto places = PlacesIn(target, scope);
      if (!places.ok()) return places.status();
      for (const Place& place : *places) pairs.push_back({place, place});
      return pairs;
    }
    // Ranks of both sides stay in: processes have other numbers on the other side.
    std::vector<v1::UnpairedStep> unpaired;
    auto all = PairPlaces(target, *golden, scope, unpaired);
    if (!all.ok()) return all.status();
    for (const PlacePair& pair : *all) {
      if (pair.target.second == std::pair<int, uint32_t>(request_.rank.kind(), request_.rank.number())) {
        pairs.push_back(pair);
      }
    }
    if (pairs.empty()) return absl::InvalidArgumentError(Cat("the run ", request_.golden, " has nothing of this rank"));
    return pairs;
  }

  // As many steps as max_values allow, judged by how many such tensors the last one has.
  absl::StatusOr<std::vector<PlacePair>> Thinned(const OpenedSource& target, std::vector<PlacePair> pairs) const {
    auto step = target.Read(pairs.back().target, {.stacks = false, .construct = false});
    if (!step.ok()) return step.status();
    const StepTable& table = (*step)->table();
    const auto wanted = [this](const Row& row) {
      return row.is_tensor && fnmatch(request_.tensors.c_str(), std::string(row.name).c_str(), 0) == 0;
    };
    const auto tensors = static_cast<size_t>(std::count_if(table.rows.begin(), table.rows.end(), wanted));
    // A golden side's values are all kept until the other's come.
    const size_t values = request_.golden.empty() ? request_.max_values : request_.max_values / 2;
    const size_t most = std::max<size_t>(1, values / std::max<size_t>(1, tensors));
    if (pairs.size() <= most) return pairs;
    const size_t each = (pairs.size() + most - 1) / most;
    // Steps with NaN or infinity may be as many again.
    size_t marked = 0;
    std::vector<PlacePair> kept;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const storage::StepRow* const row = target.RowOf(pairs[i].target);
      const bool non_finite = row != nullptr && row->nan_tensors() + row->inf_tensors() > 0 && marked < most;
      const bool regular = i % each == 0 || i + 1 == pairs.size();
      if (!regular && non_finite) ++marked;
      if (regular || non_finite) kept.push_back(pairs[i]);
    }
    return kept;
  }

  const AnalysisContext& context_;
  const LayerMapRequest& request_;
  const std::function<bool()>& cancelled_;
  const Tell& tell_;
};

}  // namespace

absl::StatusOr<LayerMap> MapLayers(const AnalysisContext& context, const LayerMapRequest& request,
                                   const std::function<bool()>& cancelled,
                                   const std::function<bool(size_t done, size_t total)>& tell) {
  if (request.tensors.empty()) return absl::InvalidArgumentError("tensors is empty: name them, e.g. *.output.0");
  return Mapping(context, request, cancelled, tell).Run();
}

}  // namespace msprobe::server
