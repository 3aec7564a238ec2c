#include "server/ingest/session/leaf_numbers.h"

#include <array>
#include <cmath>
#include <limits>

namespace msprobe::server {
namespace {

struct Named {
  std::string_view name;
  double (*of)(const LeafNumbers& numbers);
};
constexpr std::array kNamed = {
    Named{"max", [](const LeafNumbers& of) { return of.max; }},
    Named{"min", [](const LeafNumbers& of) { return of.min; }},
    Named{"mean", [](const LeafNumbers& of) { return of.mean; }},
    Named{"norm", [](const LeafNumbers& of) { return of.norm; }},
    Named{"variance", [](const LeafNumbers& of) { return of.variance; }},
    Named{"std", [](const LeafNumbers& of) { return std::sqrt(of.variance); }},
    Named{"nan", [](const LeafNumbers& of) { return static_cast<double>(of.nans); }},
    Named{"inf", [](const LeafNumbers& of) { return static_cast<double>(of.infinities); }},
    Named{"zero", [](const LeafNumbers& of) { return static_cast<double>(of.zeros); }},
    Named{"elements", [](const LeafNumbers& of) { return of.elements; }},
    Named{"zero_share", [](const LeafNumbers& of) { return static_cast<double>(of.zeros) / of.elements; }},
    Named{"rms", [](const LeafNumbers& of) { return of.norm / std::sqrt(of.elements); }},
    Named{"abs_max",
          [](const LeafNumbers& of) {
            return of.nans > 0 ? std::numeric_limits<double>::quiet_NaN()
                               : std::fmax(std::fabs(of.max), std::fabs(of.min));
          }},
    Named{"range", [](const LeafNumbers& of) { return of.max - of.min; }},
};

}  // namespace

std::optional<double> LeafNumbers::Named(std::string_view statistic) const {
  if (!has_statistics) return std::nullopt;
  for (const auto& [name, of] : kNamed) {
    if (name == statistic) return of(*this);
  }
  return std::nullopt;
}

LeafNumbers NumbersOf(const v1::Block& block, const NonFiniteByLeaf& non_finite, const FragmentColumns& at) {
  LeafNumbers numbers;
  const uint32_t flags = block.leaf_flags(static_cast<int>(at.leaf));
  if ((flags & v1::LEAF_STATISTICS) == 0) return numbers;
  numbers.has_statistics = true;
  const auto take = [&numbers](const auto& column, uint32_t leaf) {
    const int first = static_cast<int>(5 * leaf);
    numbers.max = column(first);
    numbers.min = column(first + 1);
    numbers.mean = column(first + 2);
    numbers.norm = column(first + 3);
    numbers.variance = column(first + 4);
  };
  if (TakesInteger(flags)) {
    const int extremes = static_cast<int>(2 * at.integer), moments = static_cast<int>(3 * at.integer);
    numbers.max = static_cast<double>(block.integer_extremes(extremes));
    numbers.min = static_cast<double>(block.integer_extremes(extremes + 1));
    numbers.mean = block.integer_moments(moments);
    numbers.norm = block.integer_moments(moments + 1);
    numbers.variance = block.integer_moments(moments + 2);
  } else if (TakesWide(flags)) {
    take([&block](int i) { return block.wide(i); }, at.wide);
  } else {
    take([&block](int i) { return static_cast<double>(block.narrow(i)); }, at.narrow);
  }
  numbers.zeros = block.zero_count(static_cast<int>(at.statistics));
  numbers.elements = 1;
  for (const int64_t size : block.shapes(static_cast<int>(block.shape(static_cast<int>(at.leaf)))).dims()) {
    numbers.elements *= static_cast<double>(size);
  }
  if (const auto found = non_finite.find(at.leaf); found != non_finite.end()) {
    numbers.nans = found->second->nan_count();
    numbers.infinities = found->second->positive_inf_count() + found->second->negative_inf_count();
  }
  return numbers;
}

std::optional<double> LeafScalar(const v1::Block& block, const NonFiniteByLeaf& non_finite, const FragmentColumns& at) {
  const uint32_t flags = block.leaf_flags(static_cast<int>(at.leaf));
  if (const auto found = non_finite.find(static_cast<uint32_t>(at.leaf)); found != non_finite.end()) {
    const v1::NonFinite& leaf = *found->second;
    if (leaf.nan_count() > 0) return std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    return leaf.positive_inf_count() > 0 ? infinity : -infinity;
  }
  if (TakesInteger(flags)) return static_cast<double>(block.integer_extremes(static_cast<int>(2 * at.integer)));
  if (TakesWide(flags)) return block.wide(static_cast<int>(5 * at.wide));
  if (TakesNarrow(flags)) return block.narrow(static_cast<int>(5 * at.narrow));
  return std::nullopt;
}

}  // namespace msprobe::server
