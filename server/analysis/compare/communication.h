#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/analysis/divergence/first_divergence.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// How what went wrong on one rank gets to others.
//
// A channel is what two ranks or a group talk through: "0>1" is what rank 0 sends to rank 1, "[0, 1]" (the ranks of a
// process group, or its name; "world" where none was given) are the collectives of a group. The n-th use of a channel
// on one rank belongs to the n-th on the others. Ranks are those of the whole job; of what gives a rank of a group, or
// takes from any rank, the channel is not known, and it has none.

// Of one record; empty where it is none of communication. A record of several sends and receives has one for each.
std::vector<std::string> ChannelsOf(const StepTable& table, const Entry& entry, uint32_t rank);

struct ChannelUse {
  uint64_t before = 0;  // a record
  uint64_t all = 0;     // in the step
};
// By channel; `entry` is an index of StepTable.entries.
std::map<std::string, ChannelUse> UsesOfChannels(const StepTable& table, uint32_t rank, int32_t entry);

// Where one rank of a step diverged.
struct RankDivergence {
  Blame blame = Blame::kComputation;
  uint64_t collectives_before = 0;
  std::map<std::string, ChannelUse> uses;
  std::vector<std::string> through;  // kCommunication: the channels of the record
};

// Which of them was first: one that is not explained by another rank that had diverged before it sent what came. Of
// several the one with the fewest communication records before it, of these one that is not blamed on communication.
// At least one.
size_t FirstAcrossRanks(const std::vector<RankDivergence>& found);

}  // namespace msprobe::server
