#include "server/analysis/table/statistic.h"

#include <algorithm>
#include <cmath>

namespace msprobe::server {
namespace {

std::optional<double> KnownStatistic(const Cell& cell) {
  if (cell.kind == Cell::Kind::kNone || cell.kind == Cell::Kind::kText) return std::nullopt;
  return cell.number();
}

// Counts are known where the extended statistics are.
std::optional<double> CountOf(const ExtendedStatistics* more, uint64_t count) {
  if (more == nullptr || !more->has_counts) return std::nullopt;
  return static_cast<double>(count);
}

template <typename Combine>
std::optional<double> Both(std::optional<double> a, std::optional<double> b, Combine combine) {
  if (!a || !b) return std::nullopt;
  return combine(*a, *b);
}

}  // namespace

bool HasStatistics(const Row& row) { return row.is_tensor || KnownStatistic(row.statistics[0]).has_value(); }

double ElementsOf(std::string_view shape) {
  double elements = 1;
  double dim = 0;
  bool digits = false;
  for (const char c : shape) {
    if (c >= '0' && c <= '9') {
      dim = dim * 10 + (c - '0');
      digits = true;
    } else if (digits) {
      elements *= dim;
      dim = 0;
      digits = false;
    }
  }
  return elements;
}

std::optional<double> StatisticOf(const StepTable& table, const Row& row, Statistic statistic) {
  if (!row.is_tensor) {
    const bool own_value = statistic == Statistic::kMax || statistic == Statistic::kMin ||
                           statistic == Statistic::kMean || statistic == Statistic::kNorm;
    return own_value ? KnownStatistic(row.statistics[0]) : std::nullopt;
  }
  const ExtendedStatistics* const more =
      row.extended < 0 ? nullptr : &table.extended[static_cast<size_t>(row.extended)];
  const auto of = [&](Statistic other) { return StatisticOf(table, row, other); };
  const bool counts_elements =
      statistic == Statistic::kElements || statistic == Statistic::kZeroShare || statistic == Statistic::kRms;
  const double elements = counts_elements ? ElementsOf(table.text(row.shape)) : 0;
  switch (statistic) {
    case Statistic::kMax:
      return KnownStatistic(row.statistics[0]);
    case Statistic::kMin:
      return KnownStatistic(row.statistics[1]);
    case Statistic::kMean:
      if (more != nullptr && more->has_mean) return more->mean;
      return KnownStatistic(row.statistics[2]);
    case Statistic::kNorm:
      if (more != nullptr && more->has_norm) return more->norm;
      return KnownStatistic(row.statistics[3]);
    case Statistic::kVariance:
      if (more == nullptr || !more->has_variance) return std::nullopt;
      return more->variance;
    case Statistic::kStd:
      if (more == nullptr || !more->has_variance) return std::nullopt;
      return std::sqrt(more->variance);
    case Statistic::kNan:
      return CountOf(more, more == nullptr ? 0 : more->nan_count);
    case Statistic::kInf:
      return CountOf(more, more == nullptr ? 0 : more->positive_inf_count + more->negative_inf_count);
    case Statistic::kZero:
      return CountOf(more, more == nullptr ? 0 : more->zero_count);
    case Statistic::kElements:
      return elements;
    case Statistic::kZeroShare:
      if (elements == 0) return std::nullopt;
      return Both(of(Statistic::kZero), elements, [](double zeros, double all) { return zeros / all; });
    case Statistic::kRms:
      if (elements == 0) return std::nullopt;
      return Both(of(Statistic::kNorm), elements, [](double norm, double all) { return norm / std::sqrt(all); });
    case Statistic::kAbsMax:
      return Both(of(Statistic::kMax), of(Statistic::kMin), [](double max, double min) {
        return std::isnan(max) || std::isnan(min) ? std::nan("") : std::max(std::fabs(max), std::fabs(min));
      });
    case Statistic::kRange:
      return Both(of(Statistic::kMax), of(Statistic::kMin), [](double max, double min) { return max - min; });
  }
  return std::nullopt;
}

std::optional<StatisticBounds> BoundsOf(const StepTable& table, const Row& row, Statistic statistic) {
  if (const auto exact = StatisticOf(table, row, statistic)) return StatisticBounds{*exact, *exact};
  if (statistic == Statistic::kZeroShare) {
    const auto zeros = BoundsOf(table, row, Statistic::kZero);
    const auto elements = StatisticOf(table, row, Statistic::kElements);
    if (!zeros || !elements || *elements == 0) return std::nullopt;
    return StatisticBounds{zeros->min / *elements, zeros->max / *elements};
  }
  const auto max = StatisticOf(table, row, Statistic::kMax);
  const auto min = StatisticOf(table, row, Statistic::kMin);
  const auto elements = StatisticOf(table, row, Statistic::kElements);
  if (!max || !min || !elements) return std::nullopt;
  const bool has_nan = std::isnan(*max) || std::isnan(*min);
  switch (statistic) {
    case Statistic::kNan:
      return has_nan ? StatisticBounds{1, *elements} : StatisticBounds{0, 0};
    case Statistic::kInf: {
      if (has_nan) return StatisticBounds{0, *elements - 1};
      const bool positive = std::isinf(*max) || std::isinf(*min);
      const bool both = std::isinf(*max) && std::isinf(*min) && *max != *min;
      return positive ? StatisticBounds{both ? 2.0 : 1.0, *elements} : StatisticBounds{0, 0};
    }
    case Statistic::kZero:
      if (has_nan) return StatisticBounds{0, *elements - 1};
      if (*min > 0 || *max < 0) return StatisticBounds{0, 0};
      if (*min == 0 && *max == 0) return StatisticBounds{*elements, *elements};
      return StatisticBounds{*min == 0 || *max == 0 ? 1.0 : 0.0, *elements - 1};
    default:
      return std::nullopt;
  }
}

}  // namespace msprobe::server
