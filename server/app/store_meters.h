#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/metrics/metrics.h"
#include "server/store/database.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {

// Shows in the metrics what the store, the tiler and the process are doing, when somebody is about to read them.
// Threads: any.
class StoreMeters {
 public:
  // All outlive this.
  StoreMeters(const Database* database, const Tiler* tiler, Metrics* metrics)
      : database_(database), tiler_(tiler), metrics_(metrics) {}

  void Publish() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void PublishTiler() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PublishStore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PublishProcess() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Database* const database_;
  const Tiler* const tiler_;
  Metrics* const metrics_;
  absl::Mutex mu_;
  Tiler::Counters published_tiler_ ABSL_GUARDED_BY(mu_);
  Database::Meters published_store_ ABSL_GUARDED_BY(mu_);
  double cpu_seconds_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::server
