#include "server/analysis/collectives/hang.h"

#include <algorithm>
#include <set>

namespace msprobe::server {
namespace {

using WaitsOf = std::map<uint32_t, std::vector<uint32_t>>;

// The ranks whose counterpart of the call is needed.
std::vector<uint32_t> PartnersOf(const CommunicationCall& call) {
  if (call.kind == CommunicationCall::Kind::kCollective || call.peer == CommunicationCall::kAnyPeer) {
    return call.members;
  }
  return {static_cast<uint32_t>(call.peer)};
}

// The shortest cycle through the least rank that is in one.
std::vector<uint32_t> CycleIn(const WaitsOf& waits) {
  for (const auto& [start, ignored] : waits) {
    std::map<uint32_t, uint32_t> came_from;
    std::vector<uint32_t> queue = {start};
    for (size_t i = 0; i < queue.size(); ++i) {
      const auto found = waits.find(queue[i]);
      if (found == waits.end()) continue;
      for (uint32_t next : found->second) {
        if (next == start) {
          std::vector<uint32_t> cycle;
          for (uint32_t at = queue[i]; at != start; at = came_from.at(at)) cycle.push_back(at);
          cycle.push_back(start);
          std::reverse(cycle.begin(), cycle.end());
          return cycle;
        }
        if (came_from.emplace(next, queue[i]).second) queue.push_back(next);
      }
    }
  }
  return {};
}

}  // namespace

Hang ExplainHang(const std::map<uint32_t, CollectiveJoin>& joins, std::vector<StandingRank>& ranks) {
  std::set<uint32_t> known;
  for (const StandingRank& of : ranks) known.insert(of.rank);
  std::set<uint32_t> unknown;
  std::set<uint32_t> awaited;
  WaitsOf waits;
  for (StandingRank& of : ranks) {
    std::set<uint32_t> waits_for;
    for (const CommunicationCall* call : of.calls) {
      const CollectiveJoin& join = joins.at(call->step);
      for (uint32_t partner : PartnersOf(*call)) {
        if (partner == of.rank) continue;
        if (!known.contains(partner)) {
          unknown.insert(partner);
        } else if (!join.HasMade(partner, *call)) {
          waits_for.insert(partner);
        }
      }
    }
    of.waits_for.assign(waits_for.begin(), waits_for.end());
    awaited.insert(waits_for.begin(), waits_for.end());
    if (!waits_for.empty()) waits[of.rank] = of.waits_for;
  }
  Hang hang;
  hang.unknown.assign(unknown.begin(), unknown.end());
  hang.cycle = CycleIn(waits);
  for (uint32_t rank : awaited) {
    if (!waits.contains(rank)) hang.blamed.push_back(rank);
  }
  return hang;
}

}  // namespace msprobe::server
