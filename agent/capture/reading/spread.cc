#include "agent/capture/reading/spread.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace msprobe::capture {

std::optional<SpreadStatistic> SpreadStatistic::Named(std::string_view name) {
  if (name == "kurtosis") return SpreadStatistic(Kind::kKurtosis, 0);
  const auto in = [&](std::string_view prefix, Kind kind, const auto& formats,
                      auto name_of) -> std::optional<SpreadStatistic> {
    if (!name.starts_with(prefix)) return std::nullopt;
    const std::string_view format = name.substr(prefix.size());
    const auto found =
        std::find_if(formats.begin(), formats.end(), [&](const auto& each) { return name_of(each) == format; });
    if (found == formats.end()) return std::nullopt;
    return SpreadStatistic(kind, static_cast<size_t>(found - formats.begin()));
  };
  const auto itself = [](std::string_view format) { return format; };
  const auto& quantised = stats::Quantisation::kFormats;
  if (const auto found = in("underflow_", Kind::kUnderflow, stats::Distribution::kFormats,
                            [](const stats::Distribution::Format& format) { return format.name; })) {
    return found;
  }
  if (const auto found = in("to_zero_", Kind::kToZero, quantised, itself)) return found;
  return in("error_", Kind::kError, quantised, itself);
}

Spread::Parts SpreadStatistic::parts() const {
  if (kind_ == Kind::kKurtosis || kind_ == Kind::kUnderflow) return {.distribution = true};
  return {.formats = stats::Quantisation::Formats{1} << format_};
}

double SpreadStatistic::Of(const Spread& spread) const {
  const stats::Distribution& distribution = spread.distribution;
  const stats::Quantisation::Loss& loss = spread.quantisation.losses[format_];
  const auto share = [](uint64_t count, uint64_t of) {
    return of == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(count) / static_cast<double>(of);
  };
  switch (kind_) {
    case Kind::kKurtosis:
      return distribution.finite == 0 ? std::numeric_limits<double>::quiet_NaN() : distribution.kurtosis;
    case Kind::kUnderflow:
      return share(distribution.underflows[format_], distribution.finite);
    case Kind::kToZero:
      return std::isnan(loss.error) ? loss.error : share(loss.zeroed, spread.elements);
    case Kind::kError:
      return loss.error;
  }
  return 0;
}

}  // namespace msprobe::capture
