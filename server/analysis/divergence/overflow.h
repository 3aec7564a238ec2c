#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// Where a value that is not finite comes from.
enum class Origin : uint8_t {
  kComputation = 1,  // inputs and parameters are finite, or masks of infinity; an output or gradient is not
  kWeight,           // a parameter is not finite
  kInput,            // an input is not finite, and no recorded operation made it
};

struct OverflowOrigin {
  uint32_t entry = 0;  // StepTable.entries
  uint32_t row = 0;    // StepTable.rows: the entry's first row that is not finite
  Origin origin = Origin::kComputation;
  bool nan = false;
  bool infinity = false;
  uint64_t collectives_before = 0;
};

// The records of one step in which NaN or infinity appears first, in order of execution. A record that only passes such
// values on is no origin. Max and Min decide, and the counts where a dump has them; Mean does not: the mean of an
// attention mask of -3.4e38 overflows although its elements are finite.
//
// These are no origins either:
//   - operations that give uninitialised memory (empty and its kind), or memory that another rank sent;
//   - the argument `out` of an operation, which only writes there;
//   - an argument that the operation overwrites (fill_, copy_, __setitem__ and its kind);
//   - an argument of minus infinity and finite elements, which is taken for a mask;
//   - operations with an argument that is a NaN or an infinity itself, except that the step's first NaN may come of
//     infinities that are no origin: softmax of a row that is masked whole;
//   - modules around an operation that is an origin;
//   - gradients, once a record of the forward pass was an origin in the same step;
//   - backward calls whose forward call saw NaN, which it keeps for them;
//   - gradients of parameters after a backward call that gave such values: their records have no inputs;
//   - arguments that may be views of a tensor that was not finite before. A second weight looks like one in a dump
//     without the parameters of modules, unless it is larger.
std::vector<OverflowOrigin> FindOverflowOrigins(const StepTable& table);

// Of a step without an origin: the first result of a communication (StepTable.rows) that is NaN, or that is infinite
// though the communication was given no infinity. Minus infinity alone may be the mask of another rank, unless it is a
// sum or the like (reduce, all_reduce). Nothing: there is none.
std::optional<uint32_t> FindReceived(const StepTable& table);

// The new origins of one rank, whose steps are given in order. Each weight is reported once. After a step with an
// origin the optimizer has carried NaN into the weights: from then on a step reports the first of its new weights only.
// Threads: one at a time.
class NewOverflowOrigins {
 public:
  std::vector<OverflowOrigin> In(uint32_t step, const StepTable& table);

 private:
  std::optional<uint32_t> first_step_;  // with an origin
  std::set<std::string> weights_;       // that were seen
};

// The first of a run's origins, in whatever order steps and ranks come: the one of the earliest step, and of that step
// the one with the fewest collectives before it. Of two that are alike, the one that came first.
// Threads: one at a time.
class FirstOverflow {
 public:
  // Whether this origin precedes all that came before.
  bool Take(uint32_t step, const OverflowOrigin& origin);

 private:
  std::optional<std::pair<uint32_t, uint64_t>> first_;  // step, collectives before
};

}  // namespace msprobe::server
