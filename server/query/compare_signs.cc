#include <fnmatch.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/compare/in_order.h"
#include "server/analysis/compare/place_pairs.h"
#include "server/analysis/signs/sign_limits.h"
#include "server/format/cat.h"
#include "server/query/analysis_request.h"
#include "server/query/compared_rows.h"
#include "server/query/gradients_service.h"
#include "server/query/opened_source.h"
#include "server/stored/gradient_signs.h"

namespace msprobe::server {
namespace {

absl::StatusOr<SignLimits> LimitsOf(const v1::CompareSignsRequest& request) {
  SignLimits limits;
  if (request.has_least()) limits.least = request.least();
  if (request.has_drop()) limits.drop = request.drop();
  for (const auto& [name, value] : {std::pair("least", limits.least), std::pair("drop", limits.drop)}) {
    if (!(value >= 0 && value <= 1)) {
      return absl::InvalidArgumentError(Cat(name, " is ", std::to_string(value), "; it should be from 0 to 1"));
    }
  }
  return limits;
}

}  // namespace

absl::Status CompareSigns(const AnalysisContext& context, const v1::CompareSignsRequest& request,
                          const std::function<bool()>& cancelled, const Send<v1::CompareSignsResponse>& send) {
  auto limits = LimitsOf(request);
  if (!limits.ok()) return limits.status();
  auto target = OpenedSource::OpenRun(request.run(), context);
  if (!target.ok()) return target.status();
  auto golden = OpenedSource::OpenRun(request.golden(), context);
  if (!golden.ok()) return golden.status();
  std::vector<UnpairedPlace> unpaired;
  auto pairs = PairPlaces(*target, *golden, ScopeOf(request.scope()), unpaired);
  if (!pairs.ok()) return pairs.status();
  v1::CompareSignsResponse response;
  for (const UnpairedPlace& lonely : unpaired) {
    *response.mutable_unpaired() = UnpairedMessage(lonely);
    if (!send(response)) return PeerGone();
  }

  const std::string& glob = request.scope().name_glob();
  const auto compare = [&](size_t index) -> absl::StatusOr<SignComparison> {
    if (cancelled()) return PeerGone();
    auto ours = target->Records((*pairs)[index].target);
    if (!ours.ok()) return ours.status();
    auto theirs = golden->Records((*pairs)[index].golden);
    if (!theirs.ok()) return theirs.status();
    return CompareSigns(**ours, **theirs, [&](const std::string& parameter) {
      return glob.empty() || fnmatch(glob.c_str(), parameter.c_str(), 0) == 0;
    });
  };
  // By rank and parameter.
  std::map<std::pair<std::pair<int, uint32_t>, std::string>, SignWatch> watches;
  const auto take = [&](size_t index, SignComparison found) -> absl::StatusOr<bool> {
    const StepTables::Place& place = (*pairs)[index].target;
    if (!found.parameters.empty()) found.parameters.push_back(SummaryOf(found.parameters));
    for (const SignSimilarity& each : found.parameters) {
      v1::SignSimilarity& message = *response.mutable_similarity();
      message.set_step(place.first);
      *message.mutable_rank() = RankOfPlace(place);
      message.set_parameter(each.parameter);
      message.set_elements(each.elements);
      message.set_equal(each.equal);
      SignWatch& watch = watches.try_emplace({place.second, each.parameter}, *limits).first->second;
      // A rank's empty shard has nothing to be unlike.
      message.set_verdict(each.elements == 0 ? v1::SignSimilarity::SIMILAR
                                             : static_cast<v1::SignSimilarity::Verdict>(watch.Look(each.share())));
      if (!send(response)) return PeerGone();
    }
    for (const std::string& note : found.notes) {
      response.set_note(Cat("step ", place.first, " ", TextOfRank(place), ": ", note));
      if (!send(response)) return PeerGone();
    }
    response.mutable_progress()->set_steps_done(index + 1);
    response.mutable_progress()->set_steps_total(pairs->size());
    if (!send(response)) return PeerGone();
    return true;
  };
  return InOrder<SignComparison>::Run(pairs->size(), context.threads, compare, take);
}

}  // namespace msprobe::server
