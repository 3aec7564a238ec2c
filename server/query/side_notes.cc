#include "server/query/side_notes.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "server/format/cat.h"

namespace msprobe::server {

namespace {

std::string_view Lack(OpenedSource::Completeness completeness) {
  switch (completeness) {
    case OpenedSource::Completeness::kOpen:
      return "more of it may come, it has not ended";
    case OpenedSource::Completeness::kNeverEnded:
      return "incomplete, its program was gone before the step's end";
    case OpenedSource::Completeness::kLeftOut:
      return "incomplete, records of it were left out";
    case OpenedSource::Completeness::kFileSaysSo:
      return "incomplete, as the file INCOMPLETE beside its dump.json says";
    case OpenedSource::Completeness::kWhole:
      break;
  }
  return "";
}

// Thousands of ranks may have lost the same step: the first is named, and the others counted.
std::string TextOf(const std::vector<StepTables::Place>& ranks) {
  const size_t others = ranks.size() - 1;
  return Cat(TextOfRank(ranks.front()),
             others == 0 ? std::string() : Cat(" and ", others, others == 1 ? " other rank" : " other ranks"));
}

}  // namespace

std::vector<std::string> NotesOfMissingRecords(const OpenedSource& source,
                                               const std::vector<StepTables::Place>& places) {
  std::map<std::pair<uint32_t, OpenedSource::Completeness>, std::vector<StepTables::Place>> found;
  for (const StepTables::Place& place : places) {
    const OpenedSource::Completeness completeness = source.CompletenessOf(place);
    if (completeness != OpenedSource::Completeness::kWhole) found[{place.first, completeness}].push_back(place);
  }
  // And thousands of steps may lack the same.
  struct Alike {
    std::string ranks;
    OpenedSource::Completeness completeness;
    uint32_t first = 0, last = 0, count = 0;
  };
  std::vector<Alike> all;
  for (const auto& [step, ranks] : found) {
    const std::string who = TextOf(ranks);
    auto known = std::find_if(all.begin(), all.end(), [&, completeness = step.second](const Alike& each) {
      return each.completeness == completeness && each.ranks == who;
    });
    if (known == all.end()) known = all.insert(known, {.ranks = who, .completeness = step.second, .first = step.first});
    known->last = step.first;
    ++known->count;
  }
  std::vector<std::string> notes;
  for (const Alike& each : all) {
    const std::string which = each.count == 1 ? Cat("step ", each.first, " of ", source.name(), ", ", each.ranks)
                                              : Cat(each.count, " steps of ", source.name(), ", from ", each.first,
                                                    " to ", each.last, ", ", each.ranks, ", each");
    notes.push_back(Cat(which, ": ", Lack(each.completeness)));
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

std::string NoteOfNoStatistics(const OpenedSource& source, size_t steps) {
  return Cat("no statistics were captured in ", steps, steps == 1 ? " step of " : " steps of ", source.name(),
             ": whether anything is NaN or infinite there is not known");
}

std::string NoteOfLevels(const StepTable& target, const StepTable& golden) {
  if (target.level == golden.level || target.level.empty() || golden.level.empty()) return "";
  return Cat(
      "the target was captured at level ", target.level, ", the golden side at ", golden.level,
      ": what only one of these levels records has no partner, and the calls of a name may be numbered differently");
}

}  // namespace msprobe::server
