#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/store/change_set.h"
#include "server/store/database.h"

namespace msprobe::server {

// The rows of the work queue, as far as they are the store's business: they go with their run.
//
// Threads: every method from any thread.
// 1. No row of a job is left without its run: whoever adds rows does so by Write, and a run is deleted with mutex()
// held.
class JobRows {
 public:
  // The database must outlive this object.
  explicit JobRows(Database* database) : database_(database) {}

  // Writes changes of rows of one run's jobs. NotFound: the run has been deleted, and nothing was written.
  absl::Status Write(uint32_t run, const ChangeSet& changes) ABSL_LOCKS_EXCLUDED(mutex_);

  // Adds what forgets all jobs of a run. Hold mutex() until the changes are written.
  static void AddRunDeletion(uint32_t run, ChangeSet& changes);
  // Adds what forgets one job.
  static void AddJobDeletion(uint32_t run, uint32_t job, ChangeSet& changes);
  absl::Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }

 private:
  Database* const database_;
  absl::Mutex mutex_;
};

}  // namespace msprobe::server
