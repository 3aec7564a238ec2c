#pragma once

#include <string_view>

namespace msprobe::server {

// How many times the errors of the plain implementation an operator may have.
struct BenchmarkLevel {
  std::string_view name;
  double max_rel = 0;
  double mean_rel = 0;
  double rms = 0;
};

// By mindstudio-probe's lists of important operators, of which CANN's standard names none: L0 unless listed.
BenchmarkLevel LevelOf(std::string_view operation);

}  // namespace msprobe::server
