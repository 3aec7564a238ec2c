#include "server/analysis/graph/merged_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "server/analysis/compat/mindstudio_cells.h"
#include "server/format/cat.h"

namespace msprobe::server::merge {
namespace {

constexpr double kUncertainty = 1e-6;  // relative, of means and norms that kernels sum in any order
constexpr std::array<std::string_view, 4> kStatistics = {"Max", "Min", "Mean", "Norm"};
constexpr size_t kMean = 2;
constexpr size_t kNorm = 3;

bool IsNumber(const Cell& cell) { return cell.is_number() || cell.kind == Cell::Kind::kBoolean; }

std::string TextOf(const Cell& cell) {
  std::string text;
  if (cell.kind == Cell::Kind::kReal) {
    AppendReal(cell.real, text);
  } else if (cell.kind == Cell::Kind::kBoolean) {
    text = cell.integer != 0 ? "True" : "False";
  } else {
    AppendWhole(cell, text);
  }
  return text;
}

// Whether ranks may have different parts of it.
bool IsShared(const Value& value) {
  const std::string_view dtype = value.table->text(value.row.dtype);
  for (std::string_view known : {"torch.int8", "torch.int32", "torch.int64", "torch.bfloat16", "torch.float16",
                                 "torch.float32", "torch.float64", "Float16", "Float32", "BFloat16"}) {
    if (dtype == known) return true;
  }
  return false;
}

bool SameNumber(const Cell& a, const Cell& b, bool uncertain) {
  if (!IsNumber(a) || !IsNumber(b)) return true;
  if (!uncertain) return a.number() == b.number();
  const double difference = std::fabs(a.number() - b.number());
  if (std::isnan(difference)) return std::isnan(a.number()) && std::isnan(b.number());
  if (std::isinf(difference)) return std::isinf(a.number()) && std::isinf(b.number());
  return (a.number() == 0 ? difference : std::fabs(difference / a.number())) < kUncertainty;
}

// To the nearest number of so many binary digits, even in a tie.
double ToDigits(double value, int digits, int smallest_exponent, double largest) {
  const auto narrow = static_cast<float>(value);
  if (narrow == 0 || !std::isfinite(narrow)) return narrow;
  const double unit = std::ldexp(1, std::max(std::ilogb(narrow), smallest_exponent) - digits + 1);
  const double rounded = std::nearbyint(narrow / unit) * unit;
  return std::fabs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), rounded) : rounded;
}

// A statistic of a tensor has the tensor's precision.
double InPrecisionOf(std::string_view dtype, double value) {
  if (!std::isfinite(value)) return value;
  if (dtype == "torch.float32" || dtype == "Float32") return static_cast<float>(value);
  if (dtype == "torch.bfloat16" || dtype == "BFloat16") {
    return ToDigits(value, 8, -126, std::numeric_limits<float>::max());
  }
  if (dtype == "torch.float16" || dtype == "Float16") return ToDigits(value, 11, -14, 65504);
  return value;
}

// Gives the statistic of the first value what all have together; says how.
void MergeStatistic(size_t statistic, const Differing& differing, std::vector<std::string>& notes) {
  std::vector<std::string> texts;
  for (const Value* value : differing.values) {
    if (!IsNumber(value->row.statistics[statistic])) return;
    texts.push_back(TextOf(value->row.statistics[statistic]));
  }
  Cell merged = differing.values.front()->row.statistics[statistic];
  double sum = 0;
  for (const Value* value : differing.values) {
    const Cell& cell = value->row.statistics[statistic];
    const double number = cell.number();
    sum += statistic == kNorm ? std::pow(number, 2.0) : number;
    if (statistic == 0 ? IsLess(merged, cell) : IsLess(cell, merged)) merged = cell;
  }
  std::string formula;
  if (statistic < kMean) {
    formula = Cat(statistic == 0 ? "max(" : "min(", absl::StrJoin(texts, ", "), ")");
  } else if (statistic == kMean) {
    formula = Cat("(", absl::StrJoin(texts, " + "), ") / ", texts.size());
    merged = Cell::Real(sum / static_cast<double>(texts.size()));
  } else {
    formula = Cat("(", absl::StrJoin(texts, " ** 2 + "), " ** 2) ** 0.5");
    merged = Cell::Real(std::pow(sum, 0.5));
  }
  Value& value = *differing.values.front();
  if (merged.kind == Cell::Kind::kReal) merged.real = InPrecisionOf(value.table->text(value.row.dtype), merged.real);
  value.row.statistics[statistic] = merged;
  value.row.extended = -1;
  notes.push_back(Cat("The ", kStatistics[statistic], " value merging method for ", differing.key, " is: ", formula,
                      " = ", TextOf(merged)));
}

}  // namespace

bool SameValues(const Value& a, const Value& b, bool uncertain) {
  for (size_t i = 0; i < kStatistics.size(); ++i) {
    if (!SameNumber(a.row.statistics[i], b.row.statistics[i], uncertain && i >= kMean)) return false;
  }
  return true;
}

Differences DifferencesOf(Node& main, const std::vector<Node*>& others, std::vector<Value> Node::*which,
                          bool by_values) {
  Differences found;
  if (others.empty()) return found;
  for (Value& value : main.*which) {
    if (!IsShared(value)) continue;
    bool same = by_values;
    Differing differing{Replaced(value.name, Cat(main.name, "."), ""), {&value}};
    for (Node* other : others) {
      const std::string name = Replaced(value.name, main.name, other->name);
      std::vector<Value>& values = other->*which;
      const auto partner = std::find_if(values.begin(), values.end(), [&](const Value& v) { return v.name == name; });
      if (partner == values.end() || !IsShared(*partner)) break;
      differing.values.push_back(&*partner);
      same = same && SameValues(value, *partner, /*uncertain=*/true);
    }
    if (!same) found.push_back(std::move(differing));
  }
  return found;
}

void MergeValues(const Differences& differences, std::vector<std::string>& notes) {
  for (const Differing& differing : differences) {
    if (differing.values.size() < 2) continue;
    for (size_t i = 0; i < kStatistics.size(); ++i) MergeStatistic(i, differing, notes);
  }
}

}  // namespace msprobe::server::merge
