#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/jobs/live_job.h"

namespace msprobe::server {

// Some items of one job, for one worker alone until the deadline.
struct Lease {
  uint64_t id = 0;
  uint32_t job = 0;
  std::string worker = {};            // as it calls itself
  std::string peer = {};              // Caller.peer; empty: granted by an earlier process of this server
  std::vector<TriedItem> items = {};  // without a result, in the order in which the worker runs them
  absl::Duration duration = {};       // from a heartbeat to the deadline
  absl::Time deadline = {};
  absl::Time end = {};  // no heartbeat puts the deadline off beyond it

  storage::JobLeaseRow Row() const;
};

// The leases of all jobs, by id and by deadline.
// Threads: compatible.
class LeaseTable {
 public:
  void Add(Lease lease);
  // Null: there is no such lease.
  const Lease* Find(uint64_t id) const;
  // Takes items off a lease, and the lease away with the last of them.
  void Replace(uint64_t id, std::vector<TriedItem> items);
  void Remove(uint64_t id);
  // As of a heartbeat at `now`.
  void PutOff(uint64_t id, absl::Time now);

  // A lease whose deadline has come; null: there is none.
  const Lease* Expired(absl::Time now) const;
  std::vector<uint64_t> OfJob(uint32_t job) const;
  size_t items() const { return items_; }
  size_t items_of(const std::string& peer) const;

 private:
  void Count(const Lease& lease, int64_t items);

  std::map<uint64_t, Lease> leases_;
  std::set<std::pair<absl::Time, uint64_t>> by_deadline_;
  std::map<std::string, size_t> by_peer_;  // items; no zeros
  size_t items_ = 0;
};

}  // namespace msprobe::server
