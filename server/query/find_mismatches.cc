#include <fnmatch.h>

#include <map>
#include <vector>

#include "server/analysis/collectives/collective_join.h"
#include "server/format/cat.h"
#include "server/query/analysis_request.h"
#include "server/query/communications_service.h"
#include "server/query/opened_source.h"
#include "server/query/step_communication.h"

namespace msprobe::server {
namespace {

bool Named(const v1::CollectiveMismatch& mismatch, const std::string& glob) {
  if (glob.empty()) return true;
  const auto matches = [&](const v1::Communication& call) { return fnmatch(glob.c_str(), call.op().c_str(), 0) == 0; };
  return (mismatch.has_of_odd() && matches(mismatch.of_odd())) ||
         (mismatch.has_of_others() && matches(mismatch.of_others()));
}

}  // namespace

absl::Status FindMismatches(const AnalysisContext& context, const v1::FindMismatchesRequest& request,
                            const std::function<bool()>& cancelled, const Send<v1::FindMismatchesResponse>& send) {
  v1::Source run;
  run.set_run(request.run());
  auto source = OpenedSource::Open(run, context);
  if (!source.ok()) return source.status();
  auto places = PlacesIn(*source, ScopeOf(request.scope()));
  if (!places.ok()) return places.status();
  std::map<uint32_t, std::vector<StepTables::Place>> steps;
  for (const StepTables::Place& place : *places) {
    if (place.second.first == v1::Rank::RANK) steps[place.first].push_back(place);
  }
  if (steps.empty()) {
    return absl::FailedPreconditionError(Cat(source->name(), " has no ranks to join: its processes had none"));
  }
  v1::FindMismatchesResponse response;
  uint64_t done = 0;
  uint64_t calls = 0;
  for (const auto& [step, ranks] : steps) {
    auto read = StepCommunication::Read(*source, ranks, cancelled);
    if (!read.ok()) return read.status();
    calls += read->calls();
    const CollectiveJoin join(read->ranks());
    for (const CollectiveMismatch& found : join.mismatches()) {
      v1::CollectiveMismatch message = read->Message(found);
      if (!Named(message, request.scope().name_glob())) continue;
      *response.mutable_mismatch() = std::move(message);
      if (!send(response)) return PeerGone();
    }
    response.set_calls(calls);
    response.mutable_progress()->set_steps_done(++done);
    response.mutable_progress()->set_steps_total(steps.size());
    if (!send(response)) return PeerGone();
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
