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

// How a wrong value gets from one rank to others.
//
// Ranks talk through channels. "0>1" is the channel of what rank 0 sends to rank 1. The collectives of a process group
// share a channel too: "[0, 1]" (the ranks of the group), the group's name, or "world" where no group was given. The
// n-th use of a channel on one rank belongs to the n-th use on the others. Ranks are numbered in the whole job. A call
// that names a rank within a group, or receives from any rank, has no channel: it is not known which one it uses.

// The channels of one record. Empty: it does not communicate. A record of several sends and receives has one for each.
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

// The rank that diverged first: its divergence is not explained by another rank that had diverged before it sent what
// this rank received. Where there are several, the one with the fewest communication records before it, and of these
// one that is not blamed on communication. `found` is not empty.
size_t FirstAcrossRanks(const std::vector<RankDivergence>& found);

}  // namespace msprobe::server
