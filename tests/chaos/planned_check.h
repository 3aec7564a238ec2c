#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/store/store.h"

namespace msprobe::server {

// What a store must have of a PlannedRank.
struct Planned {
  std::string run;
  uint32_t rank = 0;
  uint32_t records_a_step = 0;
  uint32_t acknowledged = 0;      // so many first steps are there whole, with their content
  std::optional<uint32_t> steps;  // exactly so many, all complete; absent: a prefix of whatever was emitted
  bool gaps = false;              // records may be missing where a gap counts them; payloads, too
};

// What is wrong, a line each; empty: nothing. Checked: the records of each step are the planned ones, in order, each
// once; steps have no hole; only the last may be incomplete, and holds a prefix; every content has its bytes; and what
// `planned` asks for. `found`, where given, gets the number of complete steps.
std::vector<std::string> CheckPlanned(const Store& store, const Planned& planned, uint32_t* found = nullptr);

}  // namespace msprobe::server
