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

// Decides which server of the cluster a session belongs to.
//
// 1. A run's shards are fixed when the run is made. Of the servers that answer, the one with the highest weight for the
//    run's name makes it (ShardsByWeight), and every shard keeps the list. A server that sees a run for the first time
//    asks all other servers before. In the first ten seconds after its own start it waits for those that do not answer.
// 2. A session that this server knows stays here, and so does a session whose agent cannot be redirected. Questions
//    find its records where they are.
// 3. A run that a server made while it was alone stays on that server whole.
// Threads: any. The first session of a run may wait some seconds for servers that do not answer.
class Placement {
 public:
  // Both outlive this.
  Placement(Store* store, Peers* peers) : store_(store), peers_(peers), began_(absl::Now()) {}

  // The address of the session's server; empty: this one. `owner`: the owner if the run is new (PlacedRun).
  // Unavailable: no server that may know the run could be asked.
  absl::StatusOr<std::string> ServerOf(const v1::Hello& hello, const std::string& owner);

 private:
  // The run's shards; empty: the run stays on this server.
  absl::StatusOr<ShardList> ShardsOf(const std::string& run, const std::string& owner);
  absl::StatusOr<ShardList> Make(const std::string& run, const std::string& owner);

  Store* const store_;
  Peers* const peers_;
  const absl::Time began_;
  absl::Mutex mu_;  // held while a run is made, so that only one is made at a time
};

}  // namespace msprobe::server
