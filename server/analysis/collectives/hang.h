#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "server/analysis/collectives/collective_join.h"

namespace msprobe::server {

// A rank, and the calls between ranks that it has begun and not ended in its last step; borrowed from a join of theirs.
struct StandingRank {
  uint32_t rank = 0;
  uint32_t step = 0;
  std::vector<const CommunicationCall*> calls;
  std::vector<uint32_t> waits_for = {};  // ExplainHang sets it
};

// Who waits for whom.
struct Hang {
  std::vector<uint32_t> unknown;  // members of groups that are not among the ranks
  std::vector<uint32_t> cycle;    // each waits for the next, the last for the first; empty: there is none
  std::vector<uint32_t> blamed;   // who is waited for, and waits for nobody
};

// A rank waits for the members of the group, or the peer of the message, that have not made the call that belongs to
// its own (CollectiveJoin::HasMade). joins: by step, those of the steps of `ranks`. ranks: in order of their numbers.
Hang ExplainHang(const std::map<uint32_t, CollectiveJoin>& joins, std::vector<StandingRank>& ranks);

}  // namespace msprobe::server
