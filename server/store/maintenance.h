#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/store/catalogue.h"
#include "server/store/database.h"
#include "server/store/definitions.h"
#include "server/store/job_rows.h"
#include "server/store/payloads.h"
#include "server/store/steps.h"

namespace msprobe::server {

// Work on a whole store rather than on one thing in it: deleting runs, getting disk space back, copies.
//
// Threads: every method from any thread. Reading and writing go on meanwhile.
class Maintenance {
 public:
  // All are borrowed.
  Maintenance(Database* database, Catalogue* catalogue, const Definitions* definitions, Steps* steps,
              const Payloads* payloads, JobRows* job_rows)
      : database_(database),
        catalogue_(catalogue),
        definitions_(definitions),
        steps_(steps),
        payloads_(payloads),
        job_rows_(job_rows) {}

  struct Deleted {
    uint64_t row_bytes = 0;
    uint64_t payload_bytes = 0;  // of payloads to which no other run refers
  };
  // NotFound as Catalogue::FindRun. FailedPrecondition: a session of the run is open.
  absl::StatusOr<Deleted> DeleteRun(const std::string& name) ABSL_LOCKS_EXCLUDED(collection_mutex_);
  // Releases a step of a session (Payloads::AddRelease) and returns how many bytes that frees. Where a session of the
  // run holds no payloads step by step, its payloads would not be told from the others': then nothing goes.
  absl::StatusOr<uint64_t> ReleaseStep(const storage::SessionRow& session, uint32_t step,
                                       absl::FunctionRef<bool(std::string_view hash)> needed);
  // What ReleaseStep has freed takes up disk until CollectSegments.
  uint64_t bytes_released() const { return bytes_released_; }
  // Counts DeleteRun: what it deleted takes up disk until ReclaimSpace.
  uint64_t runs_deleted() const { return runs_deleted_; }

  // Gives the disk what was deleted: files that hold nothing else go, others are rewritten where at least half of them
  // is garbage. Takes as long as it takes.
  absl::Status ReclaimSpace() ABSL_LOCKS_EXCLUDED(collection_mutex_);
  // The same for segments alone, with what a crash left in them: a scan of small rows, about 1 s for 1 TB.
  absl::Status CollectSegments() ABSL_LOCKS_EXCLUDED(collection_mutex_);

  // Everything written before this call, as a store of its own in a new directory: a data directory without its lock.
  // Files that never change are linked where the file system can.
  absl::Status Checkpoint(const std::string& directory) const ABSL_LOCKS_EXCLUDED(collection_mutex_);

 private:
  Database* const database_;
  Catalogue* const catalogue_;
  const Definitions* const definitions_;
  Steps* const steps_;
  const Payloads* const payloads_;
  JobRows* const job_rows_;
  // Held by whoever deletes segments, and by a checkpoint, which needs all of them. Taken before Rocks::chunk_mutex.
  mutable absl::Mutex collection_mutex_;
  std::atomic<uint64_t> runs_deleted_ = 0;
  std::atomic<uint64_t> bytes_released_ = 0;
};

}  // namespace msprobe::server
