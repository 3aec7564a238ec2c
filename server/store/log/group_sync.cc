#include "server/store/log/group_sync.h"

#include <utility>

#include "absl/time/clock.h"

namespace msprobe::server {

GroupSync::GroupSync(v1::Durability durability, absl::Duration interval, std::function<absl::Status()> sync)
    : durability_(durability), interval_(interval), sync_(std::move(sync)), thread_([this] { Loop(); }) {}

GroupSync::~GroupSync() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void GroupSync::Await(Callback callback) {
  absl::MutexLock lock(&mu_);
  if (waiting_.empty()) waiting_since_ = absl::Now();
  waiting_.push_back(std::move(callback));
}

GroupSync::Counters GroupSync::counters() const {
  absl::MutexLock lock(&mu_);
  Counters counters = counters_;
  const absl::Time now = absl::Now();
  if (counters.waiting > 0) {
    counters.lag = now - under_way_since_;
  } else if (!waiting_.empty()) {
    counters.lag = now - waiting_since_;
  }
  counters.waiting += waiting_.size();
  return counters;
}

void GroupSync::Loop() {
  absl::Time next = absl::Now() + interval_;
  while (true) {
    std::vector<Callback> group;
    bool last;
    {
      absl::MutexLock lock(&mu_);
      auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || !waiting_.empty(); };
      if (durability_ == v1::DURABILITY_INTERVAL) {
        mu_.AwaitWithDeadline(absl::Condition(&ready), next);
      } else {
        mu_.Await(absl::Condition(&ready));
      }
      group.swap(waiting_);
      last = stopping_ && group.empty();
      counters_.waiting = group.size();
      under_way_since_ = waiting_since_;
    }
    absl::Status status;
    const bool due = durability_ == v1::DURABILITY_INTERVAL && absl::Now() >= next;
    if (durability_ == v1::DURABILITY_SYNC || due || last) {
      const absl::Time start = absl::Now();
      status = sync_();
      absl::MutexLock lock(&mu_);
      ++counters_.syncs;
      counters_.busy += absl::Now() - start;
    }
    if (due) next = absl::Now() + interval_;
    for (Callback& callback : group) callback(status);
    {
      absl::MutexLock lock(&mu_);
      counters_.waiting = 0;
    }
    if (last) return;
  }
}

}  // namespace msprobe::server
