#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/analysis/compare/place_pairs.h"
#include "server/analysis/table/step_table.h"
#include "server/query/opened_source.h"

namespace msprobe::server {

// Sentences for who reads an answer: what its sides lack, or are unlike in.

// Which of the steps that were looked at do not have all of their records: a step is open, it never ended, or records
// of it were left out. One sentence tells of all steps that lack the same. `places` are some of the source's.
std::vector<std::string> NotesOfMissingRecords(const OpenedSource& source,
                                               const std::vector<StepTables::Place>& places);
// Those of both sides of what is compared. `golden` is shown under numbers of steps that are `golden_step_offset` less.
std::vector<std::string> NotesOfMissingRecords(const OpenedSource& target, const OpenedSource& golden,
                                               const std::vector<LayoutPair>& pairs, uint32_t golden_step_offset = 0);

// That nothing is known of whether values are NaN or infinite in so many steps, those of each rank counted.
std::string NoteOfNoStatistics(const OpenedSource& source, size_t steps);

// Empty: both were captured at the same level, or one does not say.
std::string NoteOfLevels(const StepTable& target, const StepTable& golden);

}  // namespace msprobe::server
