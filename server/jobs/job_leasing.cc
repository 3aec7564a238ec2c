// What workers do: JobQueue's leases, from grant to end.

#include <algorithm>
#include <utility>

#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/jobs/job_queue.h"
#include "server/jobs/job_requests.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(200);
constexpr uint32_t kAskAgainMs = 200, kAskAgainCrowdedMs = 1000;

// With a token a worker serves every run: its role has been checked. Else it serves the runs that it may send to.
bool MayWorkFor(const LiveJob& job, const Caller& caller) {
  return job.owner.empty() || caller.is_admin || caller.identity == job.owner || caller.identity.starts_with("token ");
}

absl::Status NoItem(const LiveJob& job, uint32_t item) {
  return absl::DataLossError(Cat("job ", job.number(), " has no item ", item));
}

// Whether there is room for one more, which is counted in `bytes`. The first always fits.
bool Fits(const v1::JobItem& item, size_t& bytes, const v1::LeaseResponse& response) {
  bytes += item.payload().size() + item.name().size();
  return response.items().empty() || bytes <= kMaxLeaseBytes;
}

void AddItem(const TriedItem& item, v1::JobItem row, v1::LeaseResponse& response) {
  v1::LeaseResponse::Item& added = *response.add_items();
  added.set_item(item.item);
  added.set_attempt(item.lost + 1);
  added.set_name(std::move(*row.mutable_name()));
  added.set_payload(std::move(*row.mutable_payload()));
}

}  // namespace

LiveJob* JobQueue::NextReady(const v1::LeaseRequest& request, const Caller& caller) {
  auto at = ready_.upper_bound(last_);
  for (size_t seen = 0; seen < ready_.size(); ++seen, ++at) {
    if (at == ready_.end()) at = ready_.begin();
    LiveJob& job = jobs_.at(*at);
    if (request.job() != 0 && request.job() != job.number()) continue;
    const auto& kinds = request.kinds();
    if (std::find(kinds.begin(), kinds.end(), job.row.kind()) == kinds.end()) continue;
    if (MayWorkFor(job, caller)) return &job;
  }
  return nullptr;
}

bool JobQueue::Room(const v1::LeaseRequest& request, const Caller& caller, size_t& items) const {
  const size_t of_peer = leases_.items_of(caller.peer);
  items = std::max<size_t>(request.max_items(), 1);
  if (of_peer >= options_.max_leased_of_a_peer) return false;
  items = std::min(items, options_.max_leased_of_a_peer - of_peer);
  return true;
}

absl::StatusOr<v1::LeaseResponse> JobQueue::TakeLease(const v1::LeaseRequest& request, const Caller& caller,
                                                      absl::FunctionRef<bool()> cancelled) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  const absl::Time give_up = options_.clock() + absl::Milliseconds(request.wait_ms());
  absl::StatusOr<v1::LeaseResponse> response;
  {
    absl::MutexLock lock(&mu_);
    while (true) {
      Expire();
      size_t most = 0;
      if (!Room(request, caller, most)) {
        return absl::ResourceExhaustedError(Cat(options_.max_leased_of_a_peer, " items are leased to ", caller.peer,
                                                ", which is the limit; finish or return some"));
      }
      LiveJob* const job = NextReady(request, caller);
      if (job != nullptr) {
        response = Grant(*job, most, request, caller);
        if (absl::IsNotFound(response.status())) continue;  // its run has just been deleted
        break;
      }
      v1::LeaseResponse nothing;
      const bool crowded = waiting_ >= options_.max_waiting;
      nothing.set_ask_again_ms(crowded ? kAskAgainCrowdedMs : kAskAgainMs);
      if (stopping_ || crowded || options_.clock() >= give_up || cancelled()) return nothing;
      ++waiting_;
      changed_.WaitWithTimeout(&mu_, kLook);
      --waiting_;
    }
  }
  if (!response.ok() || response->lease() == 0) return response;
  if (absl::Status status = Durable(); !status.ok()) return status;
  return response;
}

absl::Status JobQueue::AddFresh(const LiveJob& job, uint32_t first, uint32_t end, size_t& bytes,
                                v1::LeaseResponse& response) const {
  uint32_t next = first;
  bool full = false;
  const auto add = [&](std::string_view key, std::string_view value) {
    auto row = DecodeAs<v1::JobItem>(value);
    if (!row.ok()) return row.status();
    if (key != job.Key(MetaSpace::kJobItem, next)) return NoItem(job, next);
    full = !Fits(*row, bytes, response);
    if (full) return absl::CancelledError();
    AddItem({.item = next++}, *std::move(row), response);
    return absl::OkStatus();
  };
  absl::Status status = store_->database().ForRange(Family::kMeta, job.Key(MetaSpace::kJobItem, first),
                                                    job.Key(MetaSpace::kJobItem, end), add);
  if (full) return absl::OkStatus();
  return status.ok() && next != end ? NoItem(job, next) : status;
}

absl::StatusOr<bool> JobQueue::AddReturned(const LiveJob& job, const TriedItem& item, size_t& bytes,
                                           v1::LeaseResponse& response) const {
  auto row = store_->database().Find<v1::JobItem>(job.Key(MetaSpace::kJobItem, item.item));
  if (!row.ok()) return row.status();
  if (!row->has_value()) return NoItem(job, item.item);
  if (!Fits(**row, bytes, response)) return false;
  AddItem(item, **std::move(row), response);
  return true;
}

absl::StatusOr<v1::LeaseResponse> JobQueue::Grant(LiveJob& job, size_t most, const v1::LeaseRequest& request,
                                                  const Caller& caller) {
  auto row = store_->database().Find<storage::JobRow>(job.Key(MetaSpace::kJob));
  if (!row.ok()) return row.status();
  v1::LeaseResponse response;
  if (row->has_value()) response.set_options((*row)->options());
  Lease lease{.id = absl::Uniform<uint64_t>(absl::IntervalClosed, random_, 1, UINT64_MAX),
              .job = job.number(),
              .worker = request.worker(),
              .peer = caller.peer,
              .items = {},
              .duration = LeaseDuration(request.lease_ms())};
  storage::JobProgressRow progress = job.progress;
  ChangeSet changes;
  size_t bytes = 0;
  for (const auto& [number, item] : job.returned) {
    if (lease.items.size() >= most) break;
    if (item.alone && !lease.items.empty()) continue;
    auto added = AddReturned(job, item, bytes, response);
    if (!added.ok()) return added.status();
    if (!*added) break;
    lease.items.push_back(item);
    changes.Delete(Family::kMeta, job.Key(MetaSpace::kJobReturned, number));
    if (item.alone) break;
  }
  const bool alone = !lease.items.empty() && lease.items.front().alone;
  const size_t in_memory = leases_.items() + returned_;
  const size_t room = in_memory < options_.max_leased ? options_.max_leased - in_memory : 0;
  const size_t fresh_until = std::min(most, lease.items.size() + room);
  if (!alone && lease.items.size() < fresh_until && progress.fresh() < progress.items()) {
    const uint32_t first = progress.fresh();
    const size_t wanted = std::min<size_t>(fresh_until - lease.items.size(), progress.items() - first);
    absl::Status status = AddFresh(job, first, first + static_cast<uint32_t>(wanted), bytes, response);
    if (!status.ok()) return status;
    const auto added = static_cast<uint32_t>(static_cast<size_t>(response.items_size()) - lease.items.size());
    for (uint32_t i = 0; i < added; ++i) lease.items.push_back({.item = first + i});
    progress.set_fresh(first + added);
  }
  if (lease.items.empty()) {
    return absl::ResourceExhaustedError(
        Cat(in_memory, " items are leased or wait to be tried again, which is the limit; ask again later"));
  }
  changes.PutMeta(JobLeaseKey(job.row.run(), job.number(), lease.id), lease.Row());
  changes.PutMeta(job.Key(MetaSpace::kJobProgress), progress);
  if (absl::Status status = Write(job, changes, progress); !status.ok()) return status;

  for (const TriedItem& item : lease.items) returned_ -= job.returned.erase(item.item);
  job.leased += static_cast<uint32_t>(lease.items.size());
  last_ = job.number();
  const absl::Duration run = absl::Milliseconds(job.row.limits().item_timeout_ms());
  lease.deadline = options_.clock() + lease.duration;
  lease.end = lease.deadline + run * static_cast<int64_t>(lease.items.size());
  response.set_lease(lease.id);
  response.set_job(job.number());
  response.set_run(job.row.run_name());
  response.set_kind(job.row.kind());
  *response.mutable_limits() = job.row.limits();
  response.set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(lease.duration)));
  leases_.Add(std::move(lease));
  if (!job.ready()) ready_.erase(job.number());
  return response;
}

absl::StatusOr<v1::HeartbeatResponse> JobQueue::Heartbeat(const v1::HeartbeatRequest& request) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  v1::HeartbeatResponse response;
  absl::MutexLock lock(&mu_);
  Expire();
  for (uint64_t id : request.leases()) {
    if (leases_.Find(id) == nullptr) {
      response.add_gone(id);
    } else {
      leases_.PutOff(id, options_.clock());
    }
  }
  return response;
}

absl::StatusOr<v1::FinishResponse> JobQueue::Refuse(const v1::FinishRequest& request, const LiveJob& job,
                                                    const std::vector<const v1::FinishRequest::Result*>& results,
                                                    bool expired) {
  v1::FinishResponse response;
  for (const v1::FinishRequest::Result* result : results) {
    std::string why = job.progress.cancelled() ? Cat("job ", request.job(), " is cancelled")
                      : expired                ? "the lease has expired or was ended"
                                               : "the item is not of this lease";
    if (result->item() < job.progress.items()) {
      const std::string key = job.Key(MetaSpace::kJobResultOf, static_cast<uint32_t>(result->item()));
      auto value = store_->database().Get(Family::kMeta, key);
      if (!value.ok()) return value.status();
      if (value->has_value()) {
        auto place = JobResultPlace::Decode(**value);
        if (!place.ok()) return place.status();
        if (place->lease == request.lease()) continue;  // the call is repeated
        why = place->lease == 0 ? "its attempts were used up; the item has crashed"
                                : "another worker has given its result";
      }
    }
    v1::FinishResponse::Refused& refused = *response.add_refused();
    refused.set_item(result->item());
    refused.set_why(why);
    metrics_->Add(Metric::kJobResultsRefused, 1);
  }
  return response;
}

absl::StatusOr<v1::FinishResponse> JobQueue::Finish(const v1::FinishRequest& request) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  absl::StatusOr<v1::FinishResponse> response;
  {
    absl::MutexLock lock(&mu_);
    Expire();
    auto found = Find(request.job());
    if (!found.ok()) return found.status();
    LiveJob& job = **found;
    const Lease* const lease = leases_.Find(request.lease());
    const bool held = lease != nullptr && lease->job == request.job();
    std::map<uint64_t, TriedItem> open;
    if (held) {
      for (const TriedItem& item : lease->items) open.emplace(item.item, item);
    }
    storage::JobProgressRow progress = job.progress;
    ChangeSet changes;
    std::vector<const v1::FinishRequest::Result*> others;
    std::vector<std::pair<v1::Outcome, uint64_t>> counted;
    for (const v1::FinishRequest::Result& given : request.results()) {
      const auto item = open.find(given.item());
      if (item == open.end()) {
        others.push_back(&given);
        continue;
      }
      v1::ItemResult result;
      result.set_item(given.item());
      result.set_outcome(given.outcome());
      result.set_result(given.result());
      result.set_message(ShortMessage(given.message()));
      result.set_worker(request.worker());
      result.set_attempts(item->second.lost + 1);
      result.set_run_us(given.run_us());
      result.set_verdict(given.verdict());
      result.set_finished_unix_us(UnixNow());
      AddResult(job, std::move(result), request.lease(), progress, changes);
      open.erase(item);
      counted.emplace_back(given.outcome(), given.run_us());
    }
    response = Refuse(request, job, others, !held);
    if (!response.ok()) return response.status();
    if (!counted.empty()) {
      Lease left = *lease;
      std::erase_if(left.items, [&open](const TriedItem& item) { return !open.contains(item.item); });
      const std::string key = JobLeaseKey(job.row.run(), job.number(), lease->id);
      if (left.items.empty()) {
        changes.Delete(Family::kMeta, key);
      } else {
        changes.PutMeta(key, left.Row());
      }
      AddProgress(job, UnixNow(), progress, changes);
      if (absl::Status status = Write(job, changes, progress); !status.ok()) return status;
      job.leased -= static_cast<uint32_t>(counted.size());
      leases_.Replace(left.id, left.items);
      if (!left.items.empty()) leases_.PutOff(left.id, options_.clock());
      for (const auto& [outcome, run_us] : counted) CountResult(outcome, run_us);
      changed_.SignalAll();
    }
  }
  if (absl::Status status = Durable(); !status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ReturnResponse> JobQueue::Return(const v1::ReturnRequest& request) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  absl::StatusOr<v1::ReturnResponse> response = v1::ReturnResponse();
  {
    absl::MutexLock lock(&mu_);
    Expire();
    const Lease* const lease = leases_.Find(request.lease());
    if (lease == nullptr || lease->job != request.job()) return response;
    Ending ending{.crashes = {}, .alone = false, .worker = request.worker()};
    for (const v1::ReturnRequest::Crash& crash : request.crashes()) {
      ending.crashes[static_cast<uint32_t>(crash.item())] = crash.message();
    }
    response = End(*lease, ending);
    if (!response.ok()) return response;
  }
  if (absl::Status status = Durable(); !status.ok()) return status;
  return response;
}

absl::Status JobQueue::ReadPayload(const v1::ReadPayloadRequest& request,
                                   absl::FunctionRef<bool(std::string_view)> send) {
  uint32_t run = 0;
  {
    absl::MutexLock lock(&mu_);
    auto job = Find(request.job());
    if (!job.ok()) return job.status();
    run = (*job)->row.run();
  }
  auto referenced = store_->database().Get(Family::kMeta, ReferenceKey(run, request.hash()));
  if (!referenced.ok()) return referenced.status();
  if (!referenced->has_value()) {
    return absl::NotFoundError(
        Cat("the run of job ", request.job(), " has no payload ", Hex(request.hash()), "; hash is PayloadRef.hash"));
  }
  return store_->payloads().Read(request.hash(), [send](std::string_view chunk) {
    return send(chunk) ? absl::OkStatus() : absl::CancelledError("the client is gone");
  });
}

absl::StatusOr<v1::ReturnResponse> JobQueue::End(const Lease& lease, const Ending& ending) {
  auto found = Find(lease.job);
  if (!found.ok()) return found.status();
  LiveJob& job = **found;
  storage::JobProgressRow progress = job.progress;
  ChangeSet changes;
  v1::ReturnResponse response;
  std::vector<TriedItem> back;
  for (TriedItem item : lease.items) {
    const auto crash = ending.crashes.find(item.item);
    item.alone = item.alone || item.lost > 0 || ending.alone;
    if (crash != ending.crashes.end()) {
      ++item.lost;
      item.alone = true;
      progress.set_attempts_lost(progress.attempts_lost() + 1);
    }
    if (item.lost >= job.row.limits().attempts()) {
      v1::ItemResult result;
      result.set_item(item.item);
      result.set_outcome(v1::OUTCOME_CRASHED);
      result.set_message(ShortMessage(crash->second));
      result.set_worker(ending.worker);
      result.set_attempts(item.lost);
      result.set_finished_unix_us(UnixNow());
      AddResult(job, std::move(result), 0, progress, changes);
      continue;
    }
    storage::JobReturnedRow row;
    row.set_lost(item.lost);
    row.set_alone(item.alone);
    changes.PutMeta(job.Key(MetaSpace::kJobReturned, item.item), row);
    back.push_back(item);
  }
  response.set_returned(static_cast<uint32_t>(back.size()));
  response.set_crashed(static_cast<uint32_t>(lease.items.size() - back.size()));
  changes.Delete(Family::kMeta, JobLeaseKey(job.row.run(), job.number(), lease.id));
  AddProgress(job, UnixNow(), progress, changes);
  if (absl::Status status = Write(job, changes, progress); !status.ok()) return status;

  job.leased -= static_cast<uint32_t>(lease.items.size());
  for (const TriedItem& item : back) job.returned[item.item] = item;
  returned_ += back.size();
  for (uint32_t i = 0; i < response.crashed(); ++i) CountResult(v1::OUTCOME_CRASHED, 0);
  leases_.Remove(lease.id);
  Changed(job);
  return response;
}

void JobQueue::Expire() {
  const absl::Time now = options_.clock();
  while (const Lease* const lease = leases_.Expired(now)) {
    Ending ending{.crashes = {}, .alone = true, .worker = lease->worker};
    if (lease->items.size() == 1) {
      ending.crashes[lease->items.front().item] =
          now >= lease->end
              ? Cat("worker ", lease->worker, " did not give its result in the time that an item may run")
              : Cat("worker ", lease->worker, " was not heard of for ", absl::FormatDuration(lease->duration));
    }
    metrics_->Add(Metric::kJobLeasesExpired, 1);
    if (!End(*lease, ending).ok()) return;  // tried again at the next call
  }
}

}  // namespace msprobe::server
