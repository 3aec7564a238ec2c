#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/divergence/finiteness.h"
#include "server/format/cat.h"
#include "server/query/opened_source.h"
#include "server/query/side_notes.h"
#include "server/web/origin_json.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxSteps = 16;   // with NaN or infinity that are read
constexpr size_t kMaxRanks = 256;  // of each of them

// The origin of one step, of all its ranks: the one before the fewest collectives.
absl::Status FindOrigin(const WebContext& context, const std::string& run, const std::vector<v1::StepSummary>& ranks,
                        std::optional<v1::Overflow>& origin) {
  v1::OverflowRequest request;
  request.mutable_source()->set_run(run);
  request.set_limit(1);
  v1::Scope::Steps& steps = *request.mutable_scope()->add_steps();
  steps.set_first(ranks.front().step());
  steps.set_last(ranks.front().step());
  for (const v1::StepSummary& rank : ranks) *request.mutable_scope()->add_ranks() = rank.rank();
  return Overflow(context.analysis, request, context.cancelled, [&](const v1::OverflowResponse& response) {
    if (response.has_overflow() && response.overflow().first()) origin = response.overflow();
    return true;
  });
}

// Of the steps that nothing comes to any more, and where nothing is suspect, of whether statistics are captured at all,
// which the first and the last of them show.
absl::StatusOr<std::vector<std::string>> NotesOf(const WebContext& context, const std::string& run, bool suspect) {
  auto source = OpenedSource::OpenRun(run, context.analysis);
  if (!source.ok()) return source.status();
  std::vector<StepTables::Place> places;
  std::ranges::copy_if(source->places(), std::back_inserter(places),
                       [&](const StepTables::Place& place) { return !source->IsOpen(place); });
  std::vector<std::string> notes;
  if (!suspect && !places.empty()) {
    size_t blind = 0;
    std::string unread;
    for (const StepTables::Place& place : std::set{places.front(), places.back()}) {
      auto step = source->Read(place, {.stacks = false, .construct = false});
      if (!step.ok()) {
        unread = std::string(step.status().message());
      } else if (!HasAnyStatistics((*step)->table())) {
        ++blind;
      }
    }
    if (blind > 0) notes.push_back(NoteOfNoStatistics(*source, blind));
    if (!unread.empty()) notes.push_back(Cat("whether statistics were captured is not known: ", unread));
  }
  for (std::string& note : NotesOfMissingRecords(*source, places)) notes.push_back(std::move(note));
  return notes;
}

// Rules look at scalars, too, and at steps that are not captured. origin: what was found without them; null: nothing.
absl::Status AddAlarms(const WebContext& context, const std::string& run, const v1::Overflow* origin,
                       std::vector<std::string>& notes) {
  v1::ListAlarmsRequest request;
  request.set_run(run);
  std::optional<v1::Alarm> first;
  size_t count = 0;
  absl::Status status = ListAlarms(context.query, request, context.cancelled, [&](const v1::Alarm& alarm) {
    ++count;
    if (!first.has_value() || alarm.step() < first->step()) first = alarm;
    return true;
  });
  if (!status.ok() || count == 0 || (origin != nullptr && origin->step() <= first->step())) return status;
  notes.insert(notes.begin(), Cat(count == 1 ? std::string("an alarm") : Cat(count, " alarms, the first"), " at step ",
                                  first->step(), " (", first->rule(), "), ", first->series(), ": ", first->why()));
  return absl::OkStatus();
}

}  // namespace

// Where NaN or infinity began first: {"origin": as of AnswerOrigins, "suspects", "read", "notes"}. "suspects" counts
// the steps with any, over all ranks; "read" those that were looked at. "origin" is left out if none of these began
// there: a mask, or memory that nothing was written to. The notes say which steps lack records, whether statistics were
// captured at all, and of alarms.
absl::Status AnswerVerdict(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  if (!run.ok()) return run.status();
  v1::ListStepsRequest list;
  list.set_run(*run);
  std::vector<std::vector<v1::StepSummary>> suspects;  // by step; the first kMaxSteps
  size_t count = 0;
  uint32_t last = 0;
  absl::Status status = ListSteps(context.query, list, [&](const v1::StepSummary& step) {
    if (step.nan_tensors() + step.inf_tensors() == 0) return true;
    if (count == 0 || step.step() != last) {
      ++count;
      if (count <= kMaxSteps) suspects.emplace_back();
    }
    last = step.step();
    if (count <= kMaxSteps && suspects.back().size() < kMaxRanks) suspects.back().push_back(step);
    return true;
  });
  if (!status.ok()) return status;
  std::optional<v1::Overflow> origin;
  size_t read = 0;
  while (!origin.has_value() && read < suspects.size()) {
    status = FindOrigin(context, *run, suspects[read++], origin);
    if (!status.ok()) return status;
    if (!context.tell(read, suspects.size())) return PeerGone();
  }
  auto notes = NotesOf(context, *run, count > 0);
  if (!notes.ok()) return notes.status();
  status = AddAlarms(context, *run, origin.has_value() ? &*origin : nullptr, *notes);
  if (!status.ok()) return status;
  json.StartObject();
  if (origin.has_value()) {
    json.Name("origin");
    WriteOrigin(json, *origin);
  }
  json.Name("suspects");
  json.Uint64(count);
  json.Name("read");
  json.Uint64(read);
  WriteNotes(json, *notes);
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
