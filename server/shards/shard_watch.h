#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/metrics/metrics.h"
#include "server/shards/peers.h"

namespace msprobe::server {

// Asks the other servers of the cluster every ten seconds, and twice a second while one of them is gone, whether they
// are there, for the metric and the log.
//
// Threads: one; it has its own.
class ShardWatch {
 public:
  // Both outlive this.
  ShardWatch(Peers* peers, Metrics* metrics);
  ~ShardWatch();

 private:
  void Loop();

  Peers* const peers_;
  Metrics* const metrics_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace msprobe::server
