#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/monitor/rules/rule.h"

namespace msprobe::server {

// Takes offence at values beyond a limit, for some points in a row. Threads: one at a time.
class LimitWatch final : public SeriesWatch {
 public:
  enum class Side { kBelow, kAbove };
  // what: "the router's entropy".
  LimitWatch(std::string_view what, Side side, double limit, uint32_t patience)
      : what_(what), side_(side), limit_(limit), patience_(patience) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    if (!patience_.Count(side_ == Side::kBelow ? value < limit_ : value > limit_)) return std::nullopt;
    return Offence{.limit = limit_,
                   .why = what_ + " is " + Shown(value) + (side_ == Side::kBelow ? ", below " : ", above ") +
                          Shown(limit_) + " for " + std::to_string(patience_.needed()) + " points or more"};
  }

 private:
  const std::string what_;
  const Side side_;
  const double limit_;
  Patience patience_;
};

}  // namespace msprobe::server
