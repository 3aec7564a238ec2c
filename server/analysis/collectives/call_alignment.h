#pragma once

#include <cstdint>
#include <vector>

#include "server/analysis/collectives/communication_call.h"

namespace msprobe::server {

// The calls of one rank in one group, in their order; borrowed.
using CallList = std::vector<const CommunicationCall*>;

// Which of the fields that ranks of a group must have alike are not, by their names on the wire: "operation", "dtype",
// "shape", "reduce_op", "root". Of operations whose ranks may give tensors of different sizes (all_gather and
// reduce_scatter of lists, all_to_all) shapes are not looked at. After "operation" nothing is.
std::vector<std::string> Differing(const CommunicationCall& ours, const CommunicationCall& theirs);

// A call of one list and the one of the other that it belongs to; -1: there is none.
struct AlignedCall {
  int32_t reference = -1;
  int32_t other = -1;
};

// The cheapest way to make one list of the other. Calls of the same line that agree cost nothing; of calls that look
// alike the line so tells which one was left out. To pair two calls of different lines, with other arguments, or of
// different operations, costs more each time, and always less than to leave both out.
// Long lists are aligned window by window.
std::vector<AlignedCall> Align(const CallList& reference, const CallList& other);

}  // namespace msprobe::server
