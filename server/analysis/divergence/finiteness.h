#pragma once

#include <string>
#include <string_view>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// What of a tensor's values is not finite, as far as its statistics say.
struct Finiteness {
  bool nan = false;
  bool infinity = false;
  bool finite() const { return !nan && !infinity; }
};
// By Max and Min, and by the counts where a dump has them.
Finiteness FinitenessOf(const StepTable& table, const Row& row);

// Whether a tensor is an additive mask, or was added to one: it reaches down to the lowest number of its type, which
// stands for minus infinity, and not up to the highest. Its magnitudes say nothing about the model. False: the type is
// unknown.
bool HoldsMask(std::string_view dtype, double min, double max);

// What a tensor is known again by: dtype, shape, checksum and statistics.
std::string TensorKey(const StepTable& table, const Row& row);

// Whether the statistics of any of a step's tensors were captured, or none is missing. Without them nothing is known of
// its values but of scalars: checksums alone, or task structure.
bool HasAnyStatistics(const StepTable& table);

// Whether a row is the argument `out` of an operation, which only writes there.
bool IsWrittenInto(const Row& row);
// Whether an operation gives memory that nothing was written to yet.
bool GivesUninitialisedMemory(std::string_view entry);
// Whether an operation writes into its first argument, and gives out nothing that depends on what was there.
bool OverwritesItsArgument(std::string_view entry);

}  // namespace msprobe::server
