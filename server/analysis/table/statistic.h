#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// The numbers about a tensor, numbered as on the wire.
enum class Statistic : uint8_t {
  kMax = 1,
  kMin,
  kMean,
  kNorm,
  kVariance,
  kStd,
  kNan,  // elements
  kInf,  // of either sign
  kZero,
  kElements,
  kZeroShare,
  kRms,  // norm / sqrt(elements)
  kAbsMax,
  kRange,
};
constexpr int kStatistics = 14;

// Nothing: it was not captured, or the tensor has none. An argument that is a number is its own Max, Min, Mean and
// Norm, as a tensor without dimensions is; one that is no number has none.
std::optional<double> StatisticOf(const StepTable& table, const Row& row, Statistic statistic);

// A tensor, or an argument that is a number.
bool HasStatistics(const Row& row);

// The range that a statistic surely lies in, both ends included. Dumps of mindstudio-probe have no counts, but Max and
// Min tell: where both are finite there is no NaN and no infinity; where Max is NaN there is at least one NaN.
// Nothing: no bound is known.
struct StatisticBounds {
  double min = 0;
  double max = 0;
};
std::optional<StatisticBounds> BoundsOf(const StepTable& table, const Row& row, Statistic statistic);

// Of a shape as tables print it: "[2, 16]".
double ElementsOf(std::string_view shape);

}  // namespace msprobe::server
