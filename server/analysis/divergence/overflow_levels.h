#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// How badly NaN and infinity hit a call. The words are those of graph databases.
enum class OverflowLevel : uint8_t {
  kNone,
  kMedium,    // it was given such values, and its results are finite
  kHigh,      // it passes such values on, or they came from another rank
  kCritical,  // FindOverflowOrigins sees them begin here; or it makes NaN of a mask, or of memory that nothing wrote to
};

// "medium", "high", "critical"; empty: kNone.
std::string_view OverflowLevelName(OverflowLevel level);

// By index into StepTable.entries. These values are nobody's fault, and neither are those made of them alone:
//   - memory that nothing was written to yet (empty and its kind);
//   - a mask: the infinities that an operation makes of an infinite argument (masked_fill with -inf), as long as no NaN
//     comes of it.
// Max and Min decide, and the counts where a dump has them; Mean does not: the mean of a mask of -3.4e38 overflows.
std::vector<OverflowLevel> OverflowLevels(const StepTable& table);

// By index into StepTable.rows: tensors whose infinities OverflowLevels excuses as those of a mask.
std::vector<bool> MasksOfInfinity(const StepTable& table);

}  // namespace msprobe::server
