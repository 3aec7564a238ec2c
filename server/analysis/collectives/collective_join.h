#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/analysis/collectives/call_alignment.h"
#include "server/analysis/collectives/communication_call.h"

namespace msprobe::server {

// What one rank called in one step, in its order.
struct RankCalls {
  uint32_t rank = 0;
  bool ended = false;  // the rank has ended the step: what is missing will not come
  std::vector<CommunicationCall> calls;
};

enum class MismatchKind : uint8_t { kMissed = 1, kExtra, kReordered, kDiffers };

// Ranks that did something else than the others of a group.
struct CollectiveMismatch {
  MismatchKind kind = MismatchKind::kMissed;
  std::string group;
  std::vector<uint32_t> odd;
  std::vector<uint32_t> others;
  std::vector<std::string> differing;            // kDiffers: Differing()
  const CommunicationCall* of_odd = nullptr;     // of the first odd rank; kMissed: its next one, or null
  const CommunicationCall* of_others = nullptr;  // kExtra: their next one, or null
};

// The calls of the ranks of one step, joined.
//
// 1. Collectives are joined by group, in the order in which each rank made them. What most ranks of a group did is the
//    reference; of two opinions that are as common it is the longer one, then that of the lowest rank.
// 2. What a rank has not called is missed only once it has ended the step, or has called something behind it.
// 3. Messages are joined by sender, receiver and tag, in order. One without a counterpart is the mismatch of the rank
//    that lacks it, once that rank has ended the step. A receive from any rank joins nothing, and its rank's others in
//    the group join nothing either.
// 4. Ranks that nothing was captured of are left out.
//
// Threads: one at a time. The calls are borrowed and outlive this.
class CollectiveJoin {
 public:
  explicit CollectiveJoin(const std::vector<RankCalls>& ranks);

  // In the order in which the others made their calls, by their clocks.
  const std::vector<CollectiveMismatch>& mismatches() const { return mismatches_; }

  // Whether `rank` has made the call that belongs to `call`, which is one of another rank of this step.
  bool HasMade(uint32_t rank, const CommunicationCall& call) const;

 private:
  // One group's collectives: by rank, the place in the reference of each of its calls, -1 for those in none.
  struct Group {
    std::map<uint32_t, CallList> calls;
    std::map<uint32_t, std::vector<int32_t>> places;
    std::map<uint32_t, std::vector<const CommunicationCall*>> by_place;  // null: it did not make that one
  };
  struct Channel;

  void Join(const std::string& name, Group& group);
  void JoinMessages(const std::vector<RankCalls>& ranks);

  std::map<uint32_t, bool> ended_;
  std::map<std::string, Group> groups_;
  std::map<std::string, uint64_t> messages_;  // by channel and side, how many
  std::vector<CollectiveMismatch> mismatches_;
};

}  // namespace msprobe::server
