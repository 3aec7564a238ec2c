#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/format/storage/key.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/block_source.h"
#include "server/store/catalogue.h"
#include "server/store/change_set.h"
#include "server/store/database.h"
#include "server/store/definitions.h"
#include "server/store/payloads.h"
#include "server/store/record_source.h"

namespace msprobe::server {

// The steps of a store: their rows, and their blocks, which lie there as rows or as tiles.
//
// Threads: every method from any thread.
// 1. Whoever deletes or moves steps (AddDeletion, AddRankMove, AddRunDeletion) holds tiling_mutex() shared, from before
//    that call until the changes are written. That keeps the tiler from writing what is being deleted.
class Steps {
 public:
  // All must outlive this object, and every source that it opens.
  Steps(const Database* database, const Catalogue* catalogue, const Definitions* definitions, const Payloads* payloads)
      : database_(database), catalogue_(catalogue), definitions_(definitions), payloads_(payloads) {}

  using Step = std::pair<StepKey, storage::StepRow>;
  // All steps of a run, in order of rank, step, epoch.
  absl::StatusOr<std::vector<Step>> Of(uint32_t run) const;
  // The parts of one step that the sessions of a rank left, in order of epoch.
  absl::StatusOr<std::vector<Step>> Of(uint32_t run, const v1::Rank& rank, uint32_t step) const;

  // The records of a step. Without an epoch: of the session that began last among those that have the step. NotFound
  // names what does exist.
  absl::StatusOr<std::unique_ptr<RecordSource>> Open(const std::string& run, uint32_t step, const v1::Rank& rank,
                                                     std::optional<uint32_t> epoch = std::nullopt) const;
  // The blocks of a step of one session, with all that they refer to.
  absl::StatusOr<std::unique_ptr<BlockSource>> OpenBlocks(const StepKey& step, const storage::StepRow& row) const;
  // The blocks alone, in order of arrival.
  absl::StatusOr<std::vector<std::shared_ptr<const v1::Block>>> ReadBlocks(const StepKey& step) const;

  // Adds what forgets a step: its blocks, its row, its faults. Tiles go with the last of their passes. References to
  // its payloads stay with the run.
  absl::Status AddDeletion(const StepKey& step, ChangeSet& changes);
  // Adds what moves all that a session stored from one rank to another.
  absl::Status AddRankMove(uint32_t run, uint32_t epoch, uint32_t from, uint32_t to, ChangeSet& changes);
  // Adds what forgets all steps of a run. Returns how many bytes of rows that frees.
  absl::StatusOr<uint64_t> AddRunDeletion(uint32_t run, ChangeSet& changes);

  absl::Mutex& tiling_mutex() const ABSL_LOCK_RETURNED(tiling_mutex_) { return tiling_mutex_; }
  // Changes with every deletion and move of steps.
  uint64_t deletions() const { return deletions_; }

 private:
  absl::StatusOr<std::vector<Step>> Under(const std::string& prefix) const;
  // NotFound, which names what there is instead.
  absl::Status NoSuchStep(const storage::RunRow& run, uint32_t step, const v1::Rank& rank,
                          std::optional<uint32_t> epoch) const;

  const Database* const database_;
  const Catalogue* const catalogue_;
  const Definitions* const definitions_;
  const Payloads* const payloads_;
  mutable absl::Mutex tiling_mutex_;
  std::atomic<uint64_t> deletions_ = 0;
};

}  // namespace msprobe::server
