#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/analysis/step_table.h"

namespace msprobe::server {

// What is said of a tensor in numbers; as the wire numbers them.
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

// Nothing: it was not captured, or the tensor has none. Of a row that is no tensor: nothing.
std::optional<double> StatisticOf(const StepTable& table, const Row& row, Statistic statistic);

// Of a shape as tables print it: "[2, 16]".
double ElementsOf(std::string_view shape);

}  // namespace msprobe::server
