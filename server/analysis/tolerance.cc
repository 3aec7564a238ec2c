#include "server/analysis/tolerance.h"

#include <algorithm>
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

}  // namespace

Tolerance Tolerances::Of(std::string_view target_dtype, std::string_view golden_dtype) const {
  const std::string target = Plain(target_dtype);
  const std::string golden = Plain(golden_dtype);
  const size_t rank = std::min(Rank(target), Rank(golden));
  const bool floating = rank < std::size(kDefaults);
  const std::string_view coarser = floating ? kDefaults[rank].dtype : std::string_view(golden);
  if (const auto set = by_dtype_.find(coarser); set != by_dtype_.end()) return set->second;
  if (!floating) return {};
  Tolerance tolerance = kDefaults[rank].tolerance;
  if (relative_) tolerance.relative = *relative_;
  if (absolute_) tolerance.absolute = *absolute_;
  return tolerance;
}

}  // namespace msprobe::server
