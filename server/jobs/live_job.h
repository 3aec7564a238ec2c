#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "msprobe/v1/jobs.pb.h"
#include "server/format/storage/key.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/change_set.h"

namespace msprobe::server {

// What is known of an item that waits or is leased.
struct TriedItem {
  uint32_t item = 0;
  uint32_t lost = 0;   // attempts that ended with their worker
  bool alone = false;  // to be leased alone: it may have ended a worker
};

// One job in memory: what it is and how far it is, without payloads, options and results. Items that were never leased
// are a number, so that a job of a million takes no more memory than one of ten.
//
// A change is made on a copy of `progress`, written, and then taken over: a LiveJob is never ahead of the store.
// Threads: compatible.
struct LiveJob {
  LiveJob(storage::JobRow of, std::string owner_of_run) : row(std::move(of)), owner(std::move(owner_of_run)) {
    row.clear_options();
  }

  uint32_t number() const { return row.job(); }
  uint32_t waiting() const;
  bool ended() const { return progress.ended_unix_us() != 0; }
  // Whether items may be leased now.
  bool ready() const { return !ended() && waiting() > 0; }
  // Without `options` and `now_unix_us`.
  v1::Job Describe() const;
  std::string Key(MetaSpace space) const;
  std::string Key(MetaSpace space, uint32_t part) const;

  storage::JobRow row;  // constant
  std::string owner;    // of the run
  storage::JobProgressRow progress;
  std::map<uint32_t, TriedItem> returned;
  uint32_t leased = 0;   // items
  uint32_t durable = 0;  // results that are known to be durable
};

// How many results a job has; the order of the next one.
inline uint32_t Results(const storage::JobProgressRow& progress) {
  return progress.done() + progress.failed() + progress.crashed();
}

// Adds a result of an item to `changes` and counts it in `progress`, whose row it does not add. `lease`: the one that
// gave it; 0: the server itself. `result` has everything but its order.
void AddResult(const LiveJob& job, v1::ItemResult result, uint64_t lease, storage::JobProgressRow& progress,
               ChangeSet& changes);

// Adds the row of `progress`, which is ended if every item of a sealed job has its result.
void AddProgress(const LiveJob& job, int64_t now_unix_us, storage::JobProgressRow& progress, ChangeSet& changes);

}  // namespace msprobe::server
