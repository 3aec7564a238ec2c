#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/format/storage/key.h"
#include "server/store/store.h"

namespace msprobe::server {

// A run whose calls are the golden values of another run's, while both may go on. Calls are the same where step, rank
// and name with its direction are; where this run has one process, its rank does not matter.
// Threads: any.
class GoldenRun {
 public:
  GoldenRun(const Store* store, std::string name) : store_(store), name_(std::move(name)) {}

  enum class StepState {
    kAwaited,  // it may come
    kOpen,
    kEnded,
    kMissing,  // every process of the run has ended without it
  };
  // Of the step that `step` of the other run is compared with.
  absl::StatusOr<StepState> StateOf(const StepKey& step) const;
  // For each of these records, whether it is here with its tensors. Of a step that is open or has ended.
  absl::StatusOr<std::map<std::string, bool>> Have(const StepKey& step, const std::vector<std::string>& records) const;
  // The sessions with that step's rank.
  absl::StatusOr<std::vector<std::string>> SessionsFor(const StepKey& step) const;
  // Whether it has one process, which is that of every rank.
  absl::StatusOr<bool> IsForAllRanks() const;

 private:
  struct Sessions {
    uint32_t run = 0;   // number
    uint32_t rank = 0;  // that is compared with the step's
    bool one_rank = false;
    std::vector<storage::SessionRow> rows;
  };
  // Nothing: the run is not here.
  absl::StatusOr<std::optional<Sessions>> Find(const StepKey& step) const;

  const Store* const store_;
  const std::string name_;
};

// Whether every tensor of the record that was saved has come.
absl::StatusOr<bool> HasPayloads(const Store& store, const v1::Record& record);

}  // namespace msprobe::server
