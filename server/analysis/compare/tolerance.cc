#include "server/analysis/compare/tolerance.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/ascii.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

struct Default {
  std::string_view dtype;
  Tolerance tolerance;
};

// From fewest digits to most.
constexpr Default kDefaults[] = {
    {"float4_e2m1fn_x2", {0.5, 0}}, {"float8_e8m0fnu", {1, 0}},      {"float8_e5m2fnuz", {0.25, 0}},
    {"float8_e5m2", {0.25, 0}},     {"float8_e4m3fnuz", {0.125, 0}}, {"float8_e4m3fn", {0.125, 0}},
    {"bfloat16", {1.6e-2, 1e-5}},   {"complex32", {1e-3, 1e-5}},     {"float16", {1e-3, 1e-5}},
    {"complex64", {1.3e-6, 1e-5}},  {"float32", {1.3e-6, 1e-5}},     {"complex128", {1e-7, 1e-7}},
    {"float64", {1e-7, 1e-7}},
};

std::string Plain(std::string_view dtype) {
  return absl::AsciiStrToLower(AbslView(dtype.substr(dtype.rfind('.') + 1)));
}

size_t Rank(std::string_view dtype) {
  const auto* found = std::find_if(std::begin(kDefaults), std::end(kDefaults),
                                   [&](const Default& known) { return known.dtype == dtype; });
  return static_cast<size_t>(found - std::begin(kDefaults));
}

// A relative tolerance of infinity allows every difference, of 0 too, of which it is no number.
Tolerance Usable(Tolerance tolerance) {
  if (std::isinf(tolerance.relative)) return {.relative = 0, .absolute = tolerance.relative};
  return tolerance;
}

}  // namespace

Tolerance Tolerances::OfDType(std::string_view name) const {
  if (const auto set = by_dtype_.find(name); set != by_dtype_.end()) return Usable(set->second);
  const size_t rank = Rank(name);
  if (rank == std::size(kDefaults)) return {};
  Tolerance tolerance = kDefaults[rank].tolerance;
  if (relative_) tolerance.relative = *relative_;
  if (absolute_) tolerance.absolute = *absolute_;
  return Usable(tolerance);
}

Tolerance Tolerances::Of(std::string_view target_dtype, std::string_view golden_dtype,
                         std::string_view row_name) const {
  const std::string target = Plain(target_dtype);
  const std::string golden = Plain(golden_dtype);
  const std::string& coarser = Rank(target) < Rank(golden) ? target : golden;
  Tolerance tolerance = OfDType(coarser);
  const std::string name(rules_.empty() ? std::string_view() : row_name);
  for (const Rule& rule : rules_) {
    if (!rule.dtype.empty() && rule.dtype != coarser) continue;
    if (fnmatch(rule.name_glob.c_str(), name.c_str(), 0) != 0) continue;
    if (rule.relative) tolerance.relative = *rule.relative;
    if (rule.absolute) tolerance.absolute = *rule.absolute;
  }
  return Usable(tolerance);
}

}  // namespace msprobe::server
