#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/communication.pb.h"
#include "server/analysis/collectives/collective_join.h"
#include "server/query/opened_source.h"

namespace msprobe::server {

// The calls between ranks of one step of a run, and how answers show them.
// Threads: one at a time. Movable; the calls stay where they are.
class StepCommunication {
 public:
  // places: of one step and of numbered ranks. Errors as OpenedSource::Records; Cancelled.
  static absl::StatusOr<StepCommunication> Read(const OpenedSource& source,
                                                const std::vector<StepTables::Place>& places,
                                                const std::function<bool()>& cancelled);

  uint32_t step() const { return step_; }
  const std::vector<RankCalls>& ranks() const { return ranks_; }
  v1::StepSummary::State StateOf(uint32_t rank) const { return records_.at(rank)->state(); }
  uint64_t calls() const;

  v1::Communication Message(const CommunicationCall& call) const;
  v1::CollectiveMismatch Message(const CollectiveMismatch& mismatch) const;

  // Lines, innermost first; none where the run has no such stack.
  std::vector<std::string> StackOf(uint32_t rank, uint64_t id) const;

 private:
  uint32_t step_ = 0;
  std::vector<RankCalls> ranks_;
  std::map<uint32_t, std::unique_ptr<RecordSource>> records_;
};

v1::Rank NumberedRank(uint32_t number);

}  // namespace msprobe::server
