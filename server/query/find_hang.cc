#include "server/analysis/collectives/hang.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/format/cat.h"
#include "server/query/communications_service.h"
#include "server/query/opened_source.h"
#include "server/query/step_communication.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kLeastSeconds = 10;

// The innermost record that is open, and the last that ended.
struct Ends {
  std::string op;
  uint64_t stack = 0;
  std::string last_op;
  uint64_t last_stack = 0;
};

absl::StatusOr<Ends> EndsOf(const OpenedSource& source, const StepTables::Place& place,
                            const std::set<std::string>& launched) {
  auto records = source.Records(place);
  if (!records.ok()) return records.status();
  Ends ends;
  absl::Status status = (*records)->ForEachRecordHead([&](const v1::Record& head, uint64_t stack) {
    if ((head.flags() & v1::FRAGMENT_CONSTRUCT_ONLY) != 0) return absl::OkStatus();
    if ((head.flags() & v1::FRAGMENT_EXIT) != 0) {
      ends.last_op = head.full_name();
      ends.last_stack = stack;
    } else if (!launched.contains(head.full_name())) {
      ends.op = head.full_name();
      ends.stack = stack;
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return ends;
}

// The calls of a rank that have begun and not ended, the innermost first. least_us: how long they must have stood.
std::vector<const CommunicationCall*> OpenCalls(const std::vector<CommunicationCall>& calls, int64_t least_us) {
  const int64_t now = absl::ToUnixMicros(absl::Now());
  std::vector<const CommunicationCall*> open;
  for (const CommunicationCall& call : calls) {
    if (!call.ended && now - call.began_unix_us >= least_us) open.push_back(&call);
  }
  std::stable_sort(open.begin(), open.end(), [](const CommunicationCall* a, const CommunicationCall* b) {
    return std::pair(a->is_async, b->ordinal) < std::pair(b->is_async, a->ordinal);
  });
  return open;
}

}  // namespace

absl::Status FindHang(const AnalysisContext& context, const v1::FindHangRequest& request,
                      const std::function<bool()>& cancelled, v1::FindHangResponse& response) {
  v1::Source run;
  run.set_run(request.run());
  auto source = OpenedSource::Open(run, context);
  if (!source.ok()) return source.status();
  std::map<uint32_t, StepTables::Place> last;  // by rank
  for (const StepTables::Place& place : source->places()) {
    if (place.second.first == v1::Rank::RANK) last[place.second.second] = place;
  }
  if (last.empty()) {
    return absl::FailedPreconditionError(Cat(source->name(), " has no ranks that could wait: its processes had none"));
  }
  std::map<uint32_t, std::vector<StepTables::Place>> steps;
  for (const auto& [rank, place] : last) steps[place.first];
  for (const StepTables::Place& place : source->places()) {
    const auto found = steps.find(place.first);
    if (found != steps.end() && place.second.first == v1::Rank::RANK) found->second.push_back(place);
  }
  std::map<uint32_t, StepCommunication> read;
  std::map<uint32_t, CollectiveJoin> joins;
  for (const auto& [step, places] : steps) {
    auto of = StepCommunication::Read(*source, places, cancelled);
    if (!of.ok()) return of.status();
    const StepCommunication& kept = read.emplace(step, *std::move(of)).first->second;
    const CollectiveJoin& join = joins.emplace(step, kept.ranks()).first->second;
    if (!response.has_first() && !join.mismatches().empty()) {
      *response.mutable_first() = kept.Message(join.mismatches().front());
    }
  }
  const int64_t least = int64_t{request.least_seconds() == 0 ? kLeastSeconds : request.least_seconds()} * 1'000'000;
  std::vector<StandingRank> ranks;
  for (const auto& [rank, place] : last) {
    const StepCommunication& of = read.at(place.first);
    const auto calls = std::find_if(of.ranks().begin(), of.ranks().end(),
                                    [rank = rank](const RankCalls& each) { return each.rank == rank; });
    ranks.push_back(
        {.rank = rank, .step = place.first, .calls = OpenCalls(calls->calls, source->IsOpen(place) ? least : 0)});
  }
  const Hang hang = ExplainHang(joins, ranks);
  for (const StandingRank& standing : ranks) {
    const StepTables::Place& place = last.at(standing.rank);
    const StepCommunication& of = read.at(standing.step);
    v1::StandingRank& message = *response.add_ranks();
    *message.mutable_rank() = NumberedRank(standing.rank);
    message.set_step(standing.step);
    message.set_over(source->open_sessions() == 0 || of.StateOf(standing.rank) == v1::StepSummary::INCOMPLETE);
    message.set_arrived(!standing.calls.empty());
    std::set<std::string> launched;
    for (const CommunicationCall* call : standing.calls) {
      *message.add_calls() = of.Message(*call);
      if (call->is_async) launched.insert(call->op);
    }
    auto ends = EndsOf(*source, place, launched);
    if (!ends.ok()) return ends.status();
    message.set_op(ends->op);
    message.set_last_op(ends->last_op);
    for (std::string& line : of.StackOf(standing.rank, ends->stack)) message.add_stack(std::move(line));
    for (std::string& line : of.StackOf(standing.rank, ends->last_stack)) message.add_last_stack(std::move(line));
    for (uint32_t rank : standing.waits_for) *message.add_waits_for() = NumberedRank(rank);
    if (!standing.waits_for.empty()) response.set_hangs(true);
  }
  response.mutable_unknown()->Add(hang.unknown.begin(), hang.unknown.end());
  for (uint32_t rank : hang.cycle) *response.add_cycle() = NumberedRank(rank);
  for (uint32_t rank : hang.blamed) *response.add_blamed() = NumberedRank(rank);
  return absl::OkStatus();
}

}  // namespace msprobe::server
