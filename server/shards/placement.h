#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/shards/peers.h"
#include "server/store/store.h"

namespace msprobe::server {

// Which server of the cluster a session belongs to.
//
// 1. A run's shards are fixed when it is made, by the server that has the highest weight for its name among those that
//    answer (ShardsByWeight); every shard keeps the list. Whoever sees a run for the first time asks all others before,
//    and in its first ten seconds waits for those that do not answer.
// 2. A session that this server knows stays, and so does one whose agent cannot be redirected: its records are found
//    where they are.
// 3. A run that a server made while it was alone stays there, whole.
// Threads: any; a first session of a run may wait some seconds for servers that do not answer.
class Placement {
 public:
  // Both outlive this.
  Placement(Store* store, Peers* peers) : store_(store), peers_(peers), began_(absl::Now()) {}

  // The address of its server; empty: this one. `owner`: of a run that is new (PlacedRun). Unavailable: nobody could be
  // asked who may know.
  absl::StatusOr<std::string> ServerOf(const v1::Hello& hello, const std::string& owner);

 private:
  // Empty: the run stays where it is, here.
  absl::StatusOr<ShardList> ShardsOf(const std::string& run, const std::string& owner);
  absl::StatusOr<ShardList> Make(const std::string& run, const std::string& owner);

  Store* const store_;
  Peers* const peers_;
  const absl::Time began_;
  absl::Mutex mu_;  // one run at a time is made
};

}  // namespace msprobe::server
