#pragma once

#include "absl/time/time.h"
#include "server/metrics/metrics.h"
#include "server/store/database.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {

// Shows in the metrics what the store, the tiler and the process are doing.
// Threads: one.
class StoreMeters {
 public:
  // All outlive this.
  StoreMeters(const Database* database, const Tiler* tiler, Metrics* metrics)
      : database_(database), tiler_(tiler), metrics_(metrics) {}

  // May be called often: meters that are expensive to read are read once a second.
  void Publish();

 private:
  void PublishTiler();
  void PublishStore();
  void PublishProcess();

  const Database* const database_;
  const Tiler* const tiler_;
  Metrics* const metrics_;
  absl::Time next_ = absl::InfinitePast();
  Tiler::Counters published_tiler_;
  Database::Meters published_store_;
  double cpu_seconds_ = 0;
};

}  // namespace msprobe::server
