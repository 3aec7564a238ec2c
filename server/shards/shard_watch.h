#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/metrics/metrics.h"
#include "server/shards/peers.h"

namespace msprobe::server {

// Checks every ten seconds whether the other servers of the cluster answer, and tells the metric and the log. While one
// of them is gone, it checks twice a second.
//
// Threads: works on one of its own.
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
