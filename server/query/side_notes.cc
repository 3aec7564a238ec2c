#include "server/query/side_notes.h"

#include <map>
#include <utility>

#include "server/format/cat.h"

namespace msprobe::server {

std::vector<std::string> NotesOfMissingRecords(const OpenedSource& source,
                                               const std::vector<StepTables::Place>& places) {
  // Thousands of ranks may have lost the same step: a sentence names the first, and counts the others.
  std::map<std::pair<uint32_t, OpenedSource::Completeness>, std::vector<StepTables::Place>> found;
  for (const StepTables::Place& place : places) {
    const OpenedSource::Completeness completeness = source.CompletenessOf(place);
    if (completeness != OpenedSource::Completeness::kWhole) found[{place.first, completeness}].push_back(place);
  }
  std::vector<std::string> notes;
  for (const auto& [step, ranks] : found) {
    std::string who = TextOfRank(ranks.front());
    if (ranks.size() > 1) who += Cat(" and ", ranks.size() - 1, ranks.size() == 2 ? " other rank" : " other ranks");
    const std::string which = Cat("step ", step.first, " of ", source.name(), ", ", who);
    switch (step.second) {
      case OpenedSource::Completeness::kWhole:
        break;
      case OpenedSource::Completeness::kOpen:
        notes.push_back(Cat(which, ": more of it may come, it has not ended"));
        break;
      case OpenedSource::Completeness::kNeverEnded:
        notes.push_back(Cat(which, ": incomplete, its program was gone before the step's end"));
        break;
      case OpenedSource::Completeness::kLeftOut:
        notes.push_back(Cat(which, ": incomplete, records of it were left out"));
        break;
      case OpenedSource::Completeness::kFileSaysSo:
        notes.push_back(Cat(which, ": incomplete, as the file INCOMPLETE beside its dump.json says"));
        break;
    }
  }
  return notes;
}

std::vector<std::string> NotesOfMissingRecords(const OpenedSource& target, const OpenedSource& golden,
                                               const std::vector<LayoutPair>& pairs, uint32_t golden_step_offset) {
  std::vector<StepTables::Place> ours;
  std::vector<StepTables::Place> theirs;
  for (const LayoutPair& pair : pairs) {
    ours.insert(ours.end(), pair.target.begin(), pair.target.end());
    for (const auto& [step, rank] : pair.golden) theirs.emplace_back(step + golden_step_offset, rank);
  }
  std::vector<std::string> notes = NotesOfMissingRecords(target, ours);
  for (std::string& note : NotesOfMissingRecords(golden, theirs)) notes.push_back(std::move(note));
  return notes;
}

std::string NoteOfLevels(const StepTable& target, const StepTable& golden) {
  if (target.level == golden.level || target.level.empty() || golden.level.empty()) return "";
  return Cat(
      "the target was captured at level ", target.level, ", the golden side at ", golden.level,
      ": what only one of these levels records has no partner, and the calls of a name may be numbered differently");
}

}  // namespace msprobe::server
