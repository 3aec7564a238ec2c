#pragma once

#include "absl/time/time.h"
#include "server/metrics/metrics.h"
#include "server/store/database.h"

namespace msprobe::server {

// Puts what the store and the process are doing into metrics.
// Threads: one.
class StoreMeters {
 public:
  // Both outlive this.
  StoreMeters(const Database* database, Metrics* metrics) : database_(database), metrics_(metrics) {}

  // Call as often as you like: it looks once a second.
  void Publish();

 private:
  void PublishProcess();

  const Database* const database_;
  Metrics* const metrics_;
  absl::Time next_ = absl::InfinitePast();
  Database::Meters published_;
  double cpu_seconds_ = 0;
};

}  // namespace msprobe::server
