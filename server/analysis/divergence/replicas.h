#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

enum class ReplicaKind : uint8_t { kParameter = 1, kCollective };

// A tensor that several ranks must have alike, and have not.
struct ReplicaDifference {
  ReplicaKind kind = ReplicaKind::kParameter;
  std::vector<uint32_t> odd;     // ranks; all of them, where no value has a majority
  std::vector<uint32_t> others;  // that have another value, alike
  size_t table = 0;              // index of RankStep: the first odd rank
  uint32_t entry = 0;            // its StepTable.entries
  uint32_t row = 0;              // its StepTable.rows
};

struct RankStep {
  uint32_t rank = 0;
  const StepTable* table = nullptr;
};

// What the ranks of a run must have alike. Values are alike by checksum, or by statistics where there is none.
//
//   - What a collective gives to each rank of its group: all_reduce, broadcast, all_gather. The n-th use of a group on
//     one rank belongs to the n-th on the others.
//   - A parameter, on ranks that had it alike in an earlier step. In the first step nobody knows which parameters are
//     replicated and which are shards: there it must be alike where more than half of the ranks have it alike.
//     Values of one number throughout say nothing: a new bias is 0 on every shard.
//
// A parameter is told of once.
// Threads: one at a time.
class Replicas {
 public:
  // The ranks of one step, in order; steps in order. What is given stays until the call returns.
  std::vector<ReplicaDifference> In(const std::vector<RankStep>& ranks);

 private:
  struct Copy;
  using Copies = std::map<std::string, std::vector<Copy>, std::less<>>;

  void JudgeParameter(const std::string& name, const std::vector<Copy>& copies, size_t ranks,
                      std::vector<ReplicaDifference>& found);

  std::map<std::string, std::vector<std::set<uint32_t>>> alike_;  // by parameter: groups of ranks that had it alike
  std::set<std::string> told_;
};

}  // namespace msprobe::server
