#include "server/analysis/divergence/overflow_levels.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/divergence/finiteness.h"
#include "server/analysis/divergence/first_divergence.h"
#include "server/analysis/divergence/overflow.h"

namespace msprobe::server {
namespace {

// One call's rows, by what is not finite in them.
struct Given {
  bool bad_input = false;
  bool excused_input = false;  // of memory that was not written to, or of a mask
  bool argument = false;       // an argument that is no tensor is infinite or NaN
  bool bad_output = false;
  bool nan_output = false;
  std::vector<uint32_t> outputs;  // rows of those that are not finite
};

class Levels {
 public:
  explicit Levels(const StepTable& table) : table_(table), masks_(table.rows.size()) {}

  std::vector<OverflowLevel> Find() {
    std::vector<OverflowLevel> levels;
    levels.reserve(table_.entries.size());
    for (const Entry& entry : table_.entries) levels.push_back(LevelOf(entry));
    for (const OverflowOrigin& origin : FindOverflowOrigins(table_)) {
      levels[origin.entry] = OverflowLevel::kCritical;
    }
    return levels;
  }

  std::vector<bool> FindMasks() {
    for (const Entry& entry : table_.entries) LevelOf(entry);
    return std::move(masks_);
  }

 private:
  Given Look(const Entry& entry) {
    Given given;
    for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
      const Row& row = table_.rows[i];
      const Finiteness finiteness = FinitenessOf(table_, row);
      if (finiteness.finite()) continue;
      if (!row.is_tensor) {
        given.argument = true;
        continue;
      }
      const auto known = excused_.find(TensorKey(table_, row));
      const bool excused = known != excused_.end();
      if (excused) masks_[i] = known->second;
      if (row.state != RowState::kOutput && row.state != RowState::kParametersGrad) {
        (excused ? given.excused_input : given.bad_input) = true;
        continue;
      }
      given.bad_output = given.bad_output || !excused;
      given.nan_output = given.nan_output || finiteness.nan;
      given.outputs.push_back(i);
    }
    return given;
  }

  OverflowLevel LevelOf(const Entry& entry) {
    Given given = Look(entry);
    const bool masked = !given.bad_input && !given.nan_output && (given.argument || given.excused_input);
    if (masked || GivesUninitialisedMemory(entry.name)) {
      for (uint32_t row : given.outputs) {
        masks_[row] = masked;
        excused_.emplace(TensorKey(table_, table_.rows[row]), masked);
      }
      return OverflowLevel::kNone;
    }
    if (IsCommunication(entry.name)) return given.bad_output ? OverflowLevel::kHigh : OverflowLevel::kNone;
    if (!given.bad_output) return given.bad_input ? OverflowLevel::kMedium : OverflowLevel::kNone;
    // What else makes such values is an origin.
    const bool of_excused = !given.bad_input && (given.argument || given.excused_input);
    return of_excused ? OverflowLevel::kCritical : OverflowLevel::kHigh;
  }

  const StepTable& table_;
  std::vector<bool> masks_;                         // by row
  absl::flat_hash_map<std::string, bool> excused_;  // by key of a tensor: whether it is a mask
};

}  // namespace

std::string_view OverflowLevelName(OverflowLevel level) {
  switch (level) {
    case OverflowLevel::kNone:
      return "";
    case OverflowLevel::kMedium:
      return "medium";
    case OverflowLevel::kHigh:
      return "high";
    case OverflowLevel::kCritical:
      return "critical";
  }
  return "";
}

std::vector<OverflowLevel> OverflowLevels(const StepTable& table) { return Levels(table).Find(); }

std::vector<bool> MasksOfInfinity(const StepTable& table) { return Levels(table).FindMasks(); }

}  // namespace msprobe::server
