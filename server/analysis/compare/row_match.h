#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

constexpr int32_t kNoRow = -1;

// Which row of the golden table each row of the target table is compared with.
struct RowMatch {
  // In the target's order. Target rows that have no partner stand with kNoRow; a name that stands twice on a side gives
  // every combination, as mindstudio-probe does.
  std::vector<std::pair<int32_t, int32_t>> pairs;
  // Golden rows that no target row took, in their order.
  std::vector<int32_t> golden_only;
};

// Whether dtypes may be compared: equal ones, and 16-, 32- and 64-bit floats with one another.
bool DTypesMatch(std::string_view target, std::string_view golden);

// The same between MindSpore and PyTorch: integers with one another, floats, bools and complex numbers.
bool DTypesMatchAcrossFrameworks(std::string_view target, std::string_view golden);

// Keyword arguments are named after their files where there are files ("kwargs.mask"), else after their place
// ("input.mask"), as mindstudio-probe names them. Where one side has files and the other has not, that side gets
// the names of places.
void NameAlike(StepTable& a, StepTable& b);

// By full name, backward calls numbered anew in order of appearance, so that recomputation does not shift them.
RowMatch MatchExactly(const StepTable& target, const StepTable& golden);

// The same with other keys for the target's rows.
RowMatch MatchKeys(const std::vector<std::string_view>& target_keys, const StepTable& golden);

// By name without the call's number: each row with the earliest row of the other side that has not been passed over, as
// mindstudio-probe's -fm walks the two tables, but in linear time, and without forgetting what follows the end of
// the shorter one.
RowMatch MatchFuzzily(const StepTable& target, const StepTable& golden);

}  // namespace msprobe::server
