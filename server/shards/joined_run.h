#pragma once

#include <cstdint>
#include <set>

#include "absl/status/statusor.h"
#include "server/shards/run_view.h"
#include "server/shards/shards.pb.h"

namespace msprobe::server {

// The summary of a run whose parts lie on several servers. Threads: one.
class JoinedRun {
 public:
  // Adds what one server has: an answer to ListRuns.
  void Add(const shards::RunPart& part);

  // Call last. Where two servers have steps of one rank, the run is read again to count only the steps that are shown;
  // errors are those of RunView::Open.
  absl::StatusOr<v1::RunSummary> Sum(const Shards& shards) &&;

 private:
  int parts_ = 0;
  v1::RunSummary sum_;
  int64_t latest_ = 0;  // when the session was opened whose settings are in sum_
  std::set<uint32_t> steps_, ranks_;
  bool overlaps_ = false;  // two servers have steps of one rank
};

}  // namespace msprobe::server
