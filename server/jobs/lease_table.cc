#include "server/jobs/lease_table.h"

#include <algorithm>

namespace msprobe::server {

storage::JobLeaseRow Lease::Row() const {
  storage::JobLeaseRow row;
  row.set_worker(worker);
  row.set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(duration)));
  for (const TriedItem& item : items) {
    storage::JobLeaseRow::Item& added = *row.add_items();
    added.set_item(item.item);
    added.set_lost(item.lost);
  }
  return row;
}

void LeaseTable::Add(Lease lease) {
  Count(lease, static_cast<int64_t>(lease.items.size()));
  by_deadline_.emplace(lease.deadline, lease.id);
  const uint64_t id = lease.id;
  leases_.emplace(id, std::move(lease));
}

const Lease* LeaseTable::Find(uint64_t id) const {
  const auto found = leases_.find(id);
  return found == leases_.end() ? nullptr : &found->second;
}

void LeaseTable::Replace(uint64_t id, std::vector<TriedItem> items) {
  if (items.empty()) return Remove(id);
  Lease& lease = leases_.at(id);
  Count(lease, static_cast<int64_t>(items.size()) - static_cast<int64_t>(lease.items.size()));
  lease.items = std::move(items);
}

void LeaseTable::Remove(uint64_t id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  Count(found->second, -static_cast<int64_t>(found->second.items.size()));
  by_deadline_.erase({found->second.deadline, id});
  leases_.erase(found);
}

void LeaseTable::PutOff(uint64_t id, absl::Time now) {
  Lease& lease = leases_.at(id);
  by_deadline_.erase({lease.deadline, id});
  lease.deadline = std::min(now + lease.duration, lease.end);
  by_deadline_.emplace(lease.deadline, id);
}

const Lease* LeaseTable::Expired(absl::Time now) const {
  if (by_deadline_.empty() || by_deadline_.begin()->first > now) return nullptr;
  return Find(by_deadline_.begin()->second);
}

std::vector<uint64_t> LeaseTable::OfJob(uint32_t job) const {
  std::vector<uint64_t> ids;
  for (const auto& [id, lease] : leases_) {
    if (lease.job == job) ids.push_back(id);
  }
  return ids;
}

size_t LeaseTable::items_of(const std::string& peer) const {
  const auto found = by_peer_.find(peer);
  return found == by_peer_.end() ? 0 : found->second;
}

void LeaseTable::Count(const Lease& lease, int64_t items) {
  items_ += static_cast<size_t>(items);
  size_t& of_peer = by_peer_[lease.peer];
  of_peer += static_cast<size_t>(items);
  if (of_peer == 0) by_peer_.erase(lease.peer);
}

}  // namespace msprobe::server
