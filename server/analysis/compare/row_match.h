#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/analysis/table/step_table.h"
#include "server/analysis/table/text_arena.h"

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

// What the entries and rows of a step are called where partners are looked for. Views of the step or the arena.
struct StepNames {
  std::vector<std::string_view> entries;
  std::vector<std::string_view> rows;
  TextArena arena;

  // The entry has another name, and so have its rows, which begin with it.
  void Rename(const Entry& entry, size_t number, std::string_view name);
};

// As the step has them.
StepNames NamesOf(const StepTable& table);

// Backward calls numbered anew in order of appearance, so that recomputation does not shift them.
StepNames Renumbered(const StepTable& table, StepNames names);

// Whether the frameworks differ, so that one thing has another name, other arguments and dtypes of another spelling.
bool AcrossFrameworks(const StepTable& target, const StepTable& golden);

// Whether two dtypes may be compared: equal dtypes, and floats of 16, 32 and 64 bits with one another.
bool DTypesMatch(std::string_view target, std::string_view golden);

// As DTypesMatch, between MindSpore and PyTorch: all integers with one another, and so floats, bools, complex numbers.
bool DTypesMatchAcrossFrameworks(std::string_view target, std::string_view golden);

// Whether both are spellings of one dtype: "Float32" and "torch.float32".
bool SameDTypeAcrossFrameworks(std::string_view target, std::string_view golden);

// mindstudio-probe names keyword arguments after their files ("kwargs.mask") where a dump has files, else after their
// place ("input.mask"). Where one side has files and the other does not, this renames the former by places.
void NameAlike(StepTable& a, StepTable& b);

// By full name, as Renumbered has it.
RowMatch MatchExactly(const StepTable& target, const StepTable& golden);

// By the names of rows.
RowMatch MatchByNames(const StepNames& target, const StepNames& golden);

// By name without the call's number. Each row is paired with the earliest row of the other side that was not passed
// over yet, as mindstudio-probe's -fm pairs them; but in linear time, and rows after the end of the shorter table are
// kept.
RowMatch MatchFuzzily(const StepNames& target, const StepNames& golden);
RowMatch MatchFuzzily(const StepTable& target, const StepTable& golden);  // by their own names

}  // namespace msprobe::server
