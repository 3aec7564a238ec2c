#include "server/analysis/table/joined_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/analysis/compare/joined_tensor.h"
#include "server/analysis/table/statistic.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Sources = std::vector<std::unique_ptr<TableSource>>;
using Shape = std::vector<int64_t>;

Shape ShapeOf(std::string_view text) {
  Shape shape;
  for (const char* at = text.data(); at < text.data() + text.size();) {
    int64_t dim = 0;
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), dim);
    if (error == std::errc()) shape.push_back(dim);
    at = error == std::errc() ? end : at + 1;
  }
  return shape;
}

std::string TextOf(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += Cat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

// The rows of one name on one side: one of each rank that has it.
struct Part {
  size_t rank = 0;  // index of the source
  int32_t row = kNoRow;
};
using Parts = std::vector<Part>;

class JoinedTable : public TableSource {
 public:
  explicit JoinedTable(Sources ranks) : ranks_(std::move(ranks)) {}

  const StepTable& table() const override { return table_; }
  StepTable& mutable_table() override { return table_; }

  absl::StatusOr<std::unique_ptr<TensorElements>> OpenTensor(const Row& row) const override {
    const Origin& origin = origins_[static_cast<size_t>(&row - table_.rows.data())];
    std::vector<std::unique_ptr<TensorElements>> shards;
    for (const Part& part : origin.parts) {
      auto opened = ranks_[part.rank]->OpenTensor(RowOf(part));
      if (!opened.ok()) return opened.status();
      shards.push_back(*std::move(opened));
    }
    if (shards.size() == 1) return std::move(shards.front());
    return std::make_unique<JoinedTensor>(std::move(shards), origin.axis);
  }

  size_t ranks() const { return ranks_.size(); }
  const StepTable& TableOf(const Part& part) const { return ranks_[part.rank]->table(); }
  const Row& RowOf(const Part& part) const { return TableOf(part).rows[static_cast<size_t>(part.row)]; }
  std::string_view ShapeText(const Part& part) const { return TableOf(part).text(RowOf(part).shape); }

  // Rows by name, of every rank.
  absl::flat_hash_map<std::string_view, Parts> PartsByName() const {
    absl::flat_hash_map<std::string_view, Parts> parts;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::vector<Row>& rows = ranks_[rank]->table().rows;
      for (size_t i = 0; i < rows.size(); ++i) {
        Parts& of = parts[rows[i].name];
        // A name that stands twice on a rank is taken once.
        if (of.empty() || of.back().rank != rank) of.push_back({rank, static_cast<int32_t>(i)});
      }
    }
    return parts;
  }

  // Entries of the first rank, then those that it lacks.
  template <typename AddRow>
  void Build(AddRow add_row) {
    const StepTable& first = ranks_.front()->table();
    table_.framework = first.framework;
    table_.task = first.task;
    table_.level = first.level;
    table_.mode = first.mode;
    table_.debug = first.debug;
    table_.has_stacks = first.has_stacks;
    absl::flat_hash_set<std::string_view> known;
    for (const auto& rank : ranks_) {
      const StepTable& from = rank->table();
      const auto stacks = static_cast<int32_t>(table_.stacks.size());
      table_.stacks.insert(table_.stacks.end(), from.stacks.begin(), from.stacks.end());
      const size_t before = known.size();
      for (const Entry& entry : from.entries) {
        if (!known.insert(entry.name).second) continue;
        Entry& added = table_.entries.emplace_back(entry);
        if (added.stack >= 0) added.stack += stacks;
        added.first_row = static_cast<uint32_t>(table_.rows.size());
        for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) add_row(from, from.rows[i]);
      }
      if (known.size() == before) table_.stacks.resize(static_cast<size_t>(stacks));
    }
  }

  // Adds a row as one rank has it; what it is made of is its only part.
  Row& Add(const StepTable& from, const Row& row, Parts parts, size_t axis, std::string layout) {
    Row& added = table_.rows.emplace_back(row);
    added.ForgetEdge();
    added.dtype = table_.Intern(from.text(row.dtype));
    added.shape = table_.Intern(from.text(row.shape));
    if (row.extended >= 0) {
      added.extended = static_cast<int32_t>(table_.extended.size());
      table_.extended.push_back(from.extended[static_cast<size_t>(row.extended)]);
    }
    origins_.push_back({std::move(parts), axis});
    table_.layouts.push_back(std::move(layout));
    return added;
  }

 private:
  struct Origin {
    Parts parts;
    size_t axis = 0;
  };

  const Sources ranks_;
  StepTable table_;
  std::vector<Origin> origins_;  // by row
};

// What is done with one side's rows of a name.
struct Plan {
  size_t parts = 1;     // the first so many are used
  size_t replicas = 1;  // groups of that many
  std::optional<size_t> axis;
  bool nothing = false;    // they cannot be compared
  bool as_golden = false;  // a number that grows with the shards
};

class Joining {
 public:
  Joining(JoinedTable& target, JoinedTable& golden, const CompareOptions& options)
      : target_(target),
        golden_(golden),
        options_(options),
        ours_(target.PartsByName()),
        theirs_(golden.PartsByName()) {}

  void Run() {
    Build(target_, ours_, theirs_, golden_, true);
    Build(golden_, theirs_, ours_, target_, false);
  }

 private:
  using ByName = absl::flat_hash_map<std::string_view, Parts>;

  void Build(JoinedTable& side, const ByName& own, const ByName& others, const JoinedTable& other, bool is_target) {
    side.Build([&](const StepTable& from, const Row& row) {
      const Parts& parts = own.at(row.name);
      const auto found = others.find(row.name);
      if (found == others.end()) {
        side.Add(from, row, {parts.front()}, 0, "");
        return;
      }
      const Plan plan = PlanOf(side, parts, other, found->second, is_target);
      AddPlanned(side, from, row, parts, plan, other, found->second);
    });
  }

  Plan PlanOf(const JoinedTable& side, const Parts& parts, const JoinedTable& other, const Parts& others,
              bool is_target) const {
    const Row& row = side.RowOf(parts.front());
    Plan plan;
    if (!row.is_tensor) {
      plan.as_golden = is_target && IsShardSize(row, other.RowOf(others.front()));
      return plan;
    }
    std::vector<Shape> own_shapes = ShapesOf(side, parts);
    std::vector<Shape> other_shapes = ShapesOf(other, others);
    const std::optional<size_t> axis = AxisOf(own_shapes, other_shapes);
    if (!axis) {
      const bool alike = std::all_of(own_shapes.begin(), own_shapes.end(),
                                     [&](const Shape& shape) { return shape == own_shapes.front(); }) &&
                         own_shapes.front() == other_shapes.front();
      if (!alike) return plan;
      plan.replicas = parts.size();
      plan.nothing = !Agree(side, parts, 1);
      return plan;
    }
    const int64_t own_size = SizeAlong(own_shapes, *axis, own_shapes.size());
    const int64_t other_size = SizeAlong(other_shapes, *axis, other_shapes.size());
    const int64_t whole =
        std::gcd(own_size, other_size) == std::min(own_size, other_size) ? std::min(own_size, other_size) : own_size;
    const auto groups = static_cast<size_t>(whole == 0 ? 1 : own_size / whole);
    if (groups == 0 || parts.size() % groups != 0 ||
        SizeAlong(own_shapes, *axis, parts.size() / groups) * static_cast<int64_t>(groups) != own_size) {
      return plan;
    }
    plan.parts = parts.size() / groups;
    plan.replicas = groups;
    plan.axis = axis;
    plan.nothing = groups > 1 && !Agree(side, parts, plan.parts);
    return plan;
  }

  // The one axis along which shapes differ; none: they are alike, or differ otherwise.
  static std::optional<size_t> AxisOf(const std::vector<Shape>& ours, const std::vector<Shape>& theirs) {
    std::optional<size_t> axis;
    const Shape& first = ours.front();
    for (const auto* shapes : {&ours, &theirs}) {
      for (const Shape& shape : *shapes) {
        if (shape.size() != first.size()) return std::nullopt;
        for (size_t i = 0; i < shape.size(); ++i) {
          if (shape[i] == first[i]) continue;
          if (axis && *axis != i) return std::nullopt;
          axis = i;
        }
      }
    }
    return axis;
  }

  static std::vector<Shape> ShapesOf(const JoinedTable& side, const Parts& parts) {
    std::vector<Shape> shapes;
    for (const Part& part : parts) shapes.push_back(ShapeOf(side.ShapeText(part)));
    return shapes;
  }

  static int64_t SizeAlong(const std::vector<Shape>& shapes, size_t axis, size_t count) {
    int64_t size = 0;
    for (size_t i = 0; i < count; ++i) size += shapes[i][axis];
    return size;
  }

  // Whether every group of `size` parts says what the first one says.
  bool Agree(const JoinedTable& side, const Parts& parts, size_t size) const {
    CompareOptions options;
    options.tolerances = options_.tolerances;
    options.mode = CompareMode::kStatistics;
    for (size_t i = size; i < parts.size(); ++i) {
      const Part& first = parts[i % size];
      const ComparedRow judged =
          JudgeRow(side.TableOf(parts[i]), side.TableOf(first), options, parts[i].row, first.row, nullptr);
      if (IsDifference(judged.verdict)) return false;
    }
    return true;
  }

  bool IsShardSize(const Row& ours, const Row& theirs) const {
    const Cell& a = ours.statistics[0];
    const Cell& b = theirs.statistics[0];
    if (a.kind != Cell::Kind::kInteger || b.kind != Cell::Kind::kInteger || a.integer == b.integer) return false;
    return a.integer * static_cast<int64_t>(target_.ranks()) == b.integer * static_cast<int64_t>(golden_.ranks());
  }

  void AddPlanned(JoinedTable& side, const StepTable& from, const Row& row, const Parts& parts, const Plan& plan,
                  const JoinedTable& other, const Parts& others) const {
    Parts used(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(plan.parts));
    const bool joined = plan.axis && plan.parts > 1;
    Row& added = side.Add(from, row, used, plan.axis.value_or(0), LayoutText(plan));
    if (plan.as_golden) {
      added.statistics = other.RowOf(others.front()).statistics;
      return;
    }
    if (joined) Combine(side, side.mutable_table(), used, *plan.axis, added);
    if (!plan.nothing) return;
    added.statistics = {};
    added.checksum = {};
    added.data_name = {};
    added.extended = -1;
  }

  static std::string LayoutText(const Plan& plan) {
    if (plan.as_golden) return "size of a shard";
    if (plan.nothing) return "not compared: ranks hold different values of one shape (partial sums or other data)";
    std::string text;
    if (plan.axis && plan.parts > 1) text = Cat("joined along axis ", *plan.axis, " from ", plan.parts, " ranks");
    if (plan.replicas > 1) text += Cat(text.empty() ? "" : ", ", "replicated on ", plan.replicas, " ranks");
    return text;
  }

  // Statistics of shards as those of the whole.
  static void Combine(const JoinedTable& side, StepTable& joined, const Parts& parts, size_t axis, Row& row) {
    Shape shape = ShapeOf(side.ShapeText(parts.front()));
    double elements = 0;
    double sum = 0;
    double squares = 0;
    bool has_mean = true;
    bool has_norm = true;
    bool has_content = true;
    bool has_extremes = true;
    shape[axis] = 0;
    Cell max = row.statistics[0];
    Cell min = row.statistics[1];
    ExtendedStatistics whole;
    whole.has_counts = true;
    for (const Part& part : parts) {
      const StepTable& table = side.TableOf(part);
      const Row& shard = side.RowOf(part);
      shape[axis] += ShapeOf(side.ShapeText(part))[axis];
      const double count = ElementsOf(side.ShapeText(part));
      elements += count;
      const auto mean = StatisticOf(table, shard, Statistic::kMean);
      const auto norm = StatisticOf(table, shard, Statistic::kNorm);
      has_mean = has_mean && mean.has_value();
      has_norm = has_norm && norm.has_value();
      sum += mean.value_or(0) * count;
      squares += norm.value_or(0) * norm.value_or(0);
      has_content = has_content && !shard.data_name.empty();
      has_extremes = has_extremes && IsNumber(shard.statistics[0]) && IsNumber(shard.statistics[1]);
      if (has_extremes) {
        if (Beyond(shard.statistics[0], max, 1)) max = shard.statistics[0];
        if (Beyond(shard.statistics[1], min, -1)) min = shard.statistics[1];
      }
      const bool counted = shard.extended >= 0 && table.extended[static_cast<size_t>(shard.extended)].has_counts;
      whole.has_counts = whole.has_counts && counted;
      if (!counted) continue;
      const ExtendedStatistics& more = table.extended[static_cast<size_t>(shard.extended)];
      whole.nan_count += more.nan_count;
      whole.positive_inf_count += more.positive_inf_count;
      whole.negative_inf_count += more.negative_inf_count;
      whole.zero_count += more.zero_count;
    }
    row.shape = joined.Intern(TextOf(shape));
    row.checksum = {};
    if (!has_content) row.data_name = {};
    row.statistics = {};
    if (has_extremes) row.statistics = {max, min, Cell(), Cell()};
    whole.mean = elements == 0 ? 0 : sum / elements;
    whole.norm = std::sqrt(squares);
    whole.has_mean = has_mean;
    whole.has_norm = has_norm;
    if (has_extremes && has_mean) row.statistics[2] = Cell::Real(whole.mean);
    if (has_extremes && has_norm) row.statistics[3] = Cell::Real(whole.norm);
    if (row.extended >= 0) joined.extended[static_cast<size_t>(row.extended)] = whole;
  }

  static bool IsNumber(const Cell& cell) { return cell.kind != Cell::Kind::kNone && cell.kind != Cell::Kind::kText; }

  // NaN is beyond everything.
  static bool Beyond(const Cell& a, const Cell& b, int direction) {
    if (std::isnan(b.number())) return false;
    return std::isnan(a.number()) || (direction > 0 ? IsLess(b, a) : IsLess(a, b));
  }

  JoinedTable& target_;
  JoinedTable& golden_;
  const CompareOptions& options_;
  const ByName ours_;
  const ByName theirs_;
};

}  // namespace

JoinedSides JoinLayouts(Sources target, Sources golden, const CompareOptions& options) {
  if (target.size() == 1 && golden.size() == 1) return {std::move(target.front()), std::move(golden.front())};
  auto ours = std::make_unique<JoinedTable>(std::move(target));
  auto theirs = std::make_unique<JoinedTable>(std::move(golden));
  Joining(*ours, *theirs, options).Run();
  return {std::move(ours), std::move(theirs)};
}

}  // namespace msprobe::server
