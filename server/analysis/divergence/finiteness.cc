#include "server/analysis/divergence/finiteness.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {

Finiteness FinitenessOf(const StepTable& table, const Row& row) {
  Finiteness found;
  for (size_t i = 0; i < 2; ++i) {
    if (row.statistics[i].kind != Cell::Kind::kReal) continue;
    found.nan = found.nan || std::isnan(row.statistics[i].real);
    found.infinity = found.infinity || std::isinf(row.statistics[i].real);
  }
  if (row.extended >= 0) {
    const ExtendedStatistics& more = table.extended[static_cast<size_t>(row.extended)];
    found.nan = found.nan || more.nan_count != 0;
    found.infinity = found.infinity || more.positive_inf_count + more.negative_inf_count != 0;
  }
  return found;
}

bool HoldsMask(std::string_view dtype, double min, double max) {
  // "float16" is part of "bfloat16".
  for (const auto& [name, highest] : {std::pair<std::string_view, double>("bfloat16", 3.3895313892515355e38),
                                      {"float16", 65504},
                                      {"float32", std::numeric_limits<float>::max()},
                                      {"float64", std::numeric_limits<double>::max()}}) {
    if (!dtype.ends_with(name)) continue;
    constexpr double kNear = 255.0 / 256;  // what is added to a mask may round it
    return min >= -highest && min <= -highest * kNear && max < highest / 2;
  }
  return false;
}

std::string TensorKey(const StepTable& table, const Row& row) {
  std::string key = Cat(table.text(row.dtype), table.text(row.shape), row.checksum);
  for (const Cell& cell : row.statistics) {
    const double value = cell.is_number() ? cell.number() : 0;
    key += std::isnan(value) ? "n" : Cat(value, ",");
  }
  return key;
}

namespace {

bool IsOneOf(std::string_view entry, std::initializer_list<std::string_view> operations) {
  return !entry.starts_with("Module.") &&
         std::find(operations.begin(), operations.end(), OperationOf(entry)) != operations.end();
}

}  // namespace

bool HasAnyStatistics(const StepTable& table) {
  bool lacks = false;
  for (const Row& row : table.rows) {
    if (!row.is_tensor) continue;
    const bool counted = row.extended >= 0 && table.extended[static_cast<size_t>(row.extended)].has_counts;
    if (!counted && std::ranges::none_of(row.statistics, &Cell::is_number)) {
      lacks = true;
    } else if (table.text(row.shape) != "[]") {  // the value of a scalar stands in place of its statistics
      return true;
    }
  }
  return !lacks;
}

bool IsWrittenInto(const Row& row) {
  constexpr std::string_view kOut = ".forward.input.out";
  const size_t at = row.name.rfind(kOut);
  if (row.state != RowState::kInput || at == std::string_view::npos || row.name.starts_with("Module.")) return false;
  const std::string_view rest = row.name.substr(at + kOut.size());
  return rest.empty() || rest.front() == '.';  // one, or one of several
}

bool GivesUninitialisedMemory(std::string_view entry) {
  return IsOneOf(entry, {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_with_format",
                         "empty_permuted", "resize_"});
}

bool OverwritesItsArgument(std::string_view entry) {
  return IsOneOf(entry, {"__setitem__", "copy_", "fill_", "zero_"});
}

}  // namespace msprobe::server
