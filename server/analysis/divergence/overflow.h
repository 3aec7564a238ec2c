#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// Where a value that is not finite comes from.
enum class Origin : uint8_t {
  kComputation = 1,  // inputs and parameters are finite, an output or gradient is not
  kWeight,           // a parameter is not finite
  kInput,            // an input is not finite, and no recorded operation made it
};

struct OverflowOrigin {
  uint32_t entry = 0;  // StepTable.entries
  uint32_t row = 0;    // StepTable.rows: the first row of it that is not finite
  Origin origin = Origin::kComputation;
  bool nan = false;
  bool infinity = false;
  uint64_t collectives_before = 0;
};

// The origins of NaN and infinity in one step, in order of execution; what passes them on is none. Tells by Max and
// Min, and by counts where a dump has them: the mean of an attention mask of -3.4e38 overflows, its elements do not. No
// origins: operations that give uninitialised memory (empty and its kind) or what another rank sent; operations that
// were given an infinite or NaN argument; modules around an operation that is one; gradients, where an operation of the
// same step that is none was an origin before them; arguments that may be views of what was not finite before (a dump
// without modules' parameters cannot tell a second weight from them, unless it is larger).
std::vector<OverflowOrigin> FindOverflowOrigins(const StepTable& table);

// Of one rank, the origins that are new, step by step in order: a weight is told of once; behind a step with an origin
// the optimizer has spread it over the weights, and of those of a step the first stands for all.
// Threads: one at a time.
class NewOverflowOrigins {
 public:
  std::vector<OverflowOrigin> In(uint32_t step, const StepTable& table);

 private:
  std::optional<uint32_t> first_step_;  // with an origin
  std::set<std::string> weights_;       // seen
};

}  // namespace msprobe::server
