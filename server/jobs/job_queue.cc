#include "server/jobs/job_queue.h"

#include <chrono>
#include <utility>

#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/ingest/session/sessions.h"
#include "server/jobs/job_requests.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kSyncTimeout = absl::Seconds(30);
constexpr absl::Duration kSweep = absl::Seconds(1);

absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

JobQueueOptions WithClock(JobQueueOptions options) {
  if (!options.clock) options.clock = MonotonicNow;
  return options;
}

absl::Status NoJob(uint32_t job) {
  return absl::NotFoundError(Cat("no job ", job, "; it was never made, or it went with its run"));
}

}  // namespace

JobQueue::JobQueue(Store* store, Metrics* metrics, JobQueueOptions options)
    : store_(store), metrics_(metrics), options_(WithClock(std::move(options))) {}

absl::Status JobQueue::Load() {
  absl::MutexLock lock(&mu_);
  absl::Status status = LoadJobs();
  if (status.ok()) status = LoadLeases();
  for (auto& [number, job] : jobs_) Changed(job);
  return status;
}

absl::Status JobQueue::LoadJobs() {
  const Database& database = store_->database();
  auto runs = store_->catalogue().Runs();
  if (!runs.ok()) return runs.status();
  std::map<uint32_t, std::string> owners;
  for (const storage::RunRow& run : *runs) owners[run.number()] = run.owner();
  absl::Status status =
      database.ForEach(Family::kMeta, MetaPrefix(MetaSpace::kJob),
                       [&](std::string_view, std::string_view value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                         auto row = DecodeAs<storage::JobRow>(value);
                         if (row.ok()) jobs_.emplace(row->job(), LiveJob(*row, owners[row->run()]));
                         return row.status();
                       });
  for (auto& [number, job] : jobs_) {
    if (!status.ok()) return status;
    auto progress = database.Find<storage::JobProgressRow>(job.Key(MetaSpace::kJobProgress));
    if (!progress.ok()) return progress.status();
    if (!progress->has_value()) return absl::DataLossError(Cat("job ", number, " has no row of its progress"));
    job.progress = **progress;
    job.durable = Results(job.progress);
    status = database.ForEach(Family::kMeta, job.Key(MetaSpace::kJobReturned),
                              [&job = job, this](std::string_view key, std::string_view value)
                                  ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                                    auto row = DecodeAs<storage::JobReturnedRow>(value);
                                    if (!row.ok()) return row.status();
                                    const uint32_t item = ReadU32(key, 9);
                                    job.returned[item] = {.item = item, .lost = row->lost(), .alone = row->alone()};
                                    ++returned_;
                                    return absl::OkStatus();
                                  });
  }
  return status;
}

absl::Status JobQueue::LoadLeases() {
  const absl::Time now = options_.clock();
  return store_->database().ForEach(
      Family::kMeta, MetaPrefix(MetaSpace::kJobLease),
      [&](std::string_view key, std::string_view value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        auto row = DecodeAs<storage::JobLeaseRow>(value);
        if (!row.ok()) return row.status();
        const auto job = jobs_.find(ReadU32(key, 5));
        if (job == jobs_.end()) return absl::DataLossError(Cat(MetaKeyToString(key), " is of no job"));
        Lease lease{.id = ReadU64(key, 9), .job = job->first, .worker = row->worker(), .peer = {}, .items = {}};
        lease.duration = absl::Milliseconds(row->lease_ms());
        for (const storage::JobLeaseRow::Item& item : row->items()) {
          lease.items.push_back({.item = item.item(), .lost = item.lost(), .alone = false});
        }
        const absl::Duration run = absl::Milliseconds(job->second.row.limits().item_timeout_ms());
        lease.deadline = now + lease.duration;
        lease.end = lease.deadline + run * static_cast<int64_t>(lease.items.size());
        job->second.leased += static_cast<uint32_t>(lease.items.size());
        leases_.Add(std::move(lease));
        return absl::OkStatus();
      });
}

void JobQueue::Tick() {
  std::vector<std::pair<uint32_t, uint32_t>> runs;  // of jobs
  {
    absl::MutexLock lock(&mu_);
    Expire();
    double waiting = 0;
    for (uint32_t job : ready_) waiting += jobs_.at(job).waiting();
    metrics_->Set(Metric::kJobItems, waiting, {"waiting"});
    metrics_->Set(Metric::kJobItems, static_cast<double>(leases_.items()), {"leased"});
    const absl::Time now = options_.clock();
    if (now - swept_ < kSweep) return;
    swept_ = now;
    for (const auto& [number, job] : jobs_) runs.emplace_back(number, job.row.run());
  }
  std::map<uint32_t, bool> there;
  for (const auto& [job, run] : runs) {
    if (!there.contains(run)) {
      auto row = store_->database().Get(Family::kMeta, RunKey(run));
      there[run] = !row.ok() || row->has_value();
    }
    if (there[run]) continue;
    absl::MutexLock lock(&mu_);
    Forget(job);
  }
}

void JobQueue::Stop() {
  absl::MutexLock lock(&mu_);
  stopping_ = true;
  changed_.SignalAll();
}

absl::Status JobQueue::Durable() { return store_->database().AwaitDurable(kSyncTimeout); }

absl::StatusOr<LiveJob*> JobQueue::Find(uint32_t job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return NoJob(job);
  return &found->second;
}

absl::StatusOr<LiveJob*> JobQueue::FindOwn(uint32_t job, const Caller& caller) {
  auto found = Find(job);
  if (!found.ok()) return found;
  absl::Status status = CheckOwner((*found)->row.run_name(), (*found)->owner, caller);
  if (!status.ok()) return status;
  return found;
}

const LiveJob* JobQueue::FindToken(const std::string& run, const std::string& token) const {
  for (const auto& [number, job] : jobs_) {
    if (job.row.token() == token && job.row.run_name() == run) return &job;
  }
  return nullptr;
}

absl::Status JobQueue::Write(LiveJob& job, const ChangeSet& changes, const storage::JobProgressRow& progress) {
  absl::Status status = store_->job_rows().Write(job.row.run(), changes);
  if (status.ok()) job.progress = progress;
  if (absl::IsNotFound(status)) {
    const uint32_t number = job.number();
    Forget(number);
    return NoJob(number);
  }
  return status;
}

void JobQueue::Forget(uint32_t job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  for (uint64_t lease : leases_.OfJob(job)) leases_.Remove(lease);
  returned_ -= found->second.returned.size();
  ready_.erase(job);
  jobs_.erase(found);
  changed_.SignalAll();
}

void JobQueue::Changed(const LiveJob& job) {
  if (job.ready()) {
    ready_.insert(job.number());
  } else {
    ready_.erase(job.number());
  }
  changed_.SignalAll();
}

absl::StatusOr<v1::Job> JobQueue::Create(const v1::CreateJobRequest& request, const Caller& caller) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  if (absl::Status status = store_->database().Writable(); !status.ok()) return status;
  auto run = store_->catalogue().FindRun(request.run());
  if (!run.ok()) return run.status();
  if (absl::Status status = CheckOwner(run->name(), run->owner(), caller); !status.ok()) return status;
  {
    absl::MutexLock lock(&mu_);
    if (const LiveJob* known = FindToken(request.run(), request.token()); known != nullptr) return known->Describe();
    if (jobs_.size() >= options_.max_jobs) {
      return absl::ResourceExhaustedError(
          Cat("this server has ", jobs_.size(), " jobs, which is its limit; delete some, or runs that have them"));
    }
  }
  auto number = store_->catalogue().TakeJobNumber();
  if (!number.ok()) return number.status();
  storage::JobRow row;
  row.set_job(*number);
  row.set_run(run->number());
  row.set_run_name(run->name());
  row.set_kind(request.kind());
  row.set_title(request.title());
  row.set_token(request.token());
  row.set_options(request.options());
  *row.mutable_limits() = LimitsOf(request.limits());
  row.set_created_unix_us(UnixNow());
  row.set_created_by(caller.identity);
  v1::Job answer;
  {
    absl::MutexLock lock(&mu_);
    if (const LiveJob* known = FindToken(request.run(), request.token()); known != nullptr) return known->Describe();
    ChangeSet changes;
    changes.PutMeta(JobKey(MetaSpace::kJob, run->number(), *number), row);
    changes.PutMeta(JobKey(MetaSpace::kJobProgress, run->number(), *number), storage::JobProgressRow());
    absl::Status status = store_->job_rows().Write(run->number(), changes);
    if (!status.ok()) return status;
    answer = jobs_.emplace(*number, LiveJob(row, run->owner())).first->second.Describe();
  }
  if (absl::Status status = Durable(); !status.ok()) return status;
  return answer;
}

absl::StatusOr<v1::Job> JobQueue::AddItems(const v1::AddItemsRequest& request, const Caller& caller) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  if (absl::Status status = store_->database().Writable(); !status.ok()) return status;
  v1::Job answer;
  {
    absl::MutexLock lock(&mu_);
    auto job = FindOwn(request.job(), caller);
    if (!job.ok()) return job.status();
    storage::JobProgressRow progress = (*job)->progress;
    const uint32_t there = progress.items();
    if (request.first() > there) {
      return absl::InvalidArgumentError(
          Cat("first is ", request.first(), ", but job ", request.job(), " has ", there, " items; it may not be more"));
    }
    const uint64_t known = std::min<uint64_t>(there - request.first(), static_cast<uint64_t>(request.items_size()));
    const bool nothing_new =
        known == static_cast<uint64_t>(request.items_size()) && (!request.seal() || progress.sealed());
    if (!nothing_new) {
      if (progress.cancelled() || progress.sealed()) {
        return absl::FailedPreconditionError(
            Cat("job ", request.job(), " is ", progress.cancelled() ? "cancelled" : "sealed", "; make another"));
      }
      ChangeSet changes;
      for (auto i = static_cast<int>(known); i < request.items_size(); ++i) {
        changes.PutMeta((*job)->Key(MetaSpace::kJobItem, progress.items()), request.items(i));
        progress.set_items(progress.items() + 1);
      }
      progress.set_sealed(request.seal());
      AddProgress(**job, UnixNow(), progress, changes);
      if (absl::Status status = Write(**job, changes, progress); !status.ok()) return status;
      Changed(**job);
    }
    answer = (*job)->Describe();
  }
  if (absl::Status status = Durable(); !status.ok()) return status;
  return answer;
}

absl::StatusOr<v1::ListJobsResponse> JobQueue::List(const v1::ListJobsRequest& request) {
  if (!request.run().empty()) {
    auto run = store_->catalogue().FindRun(request.run());
    if (!run.ok()) return run.status();
  }
  v1::ListJobsResponse response;
  std::string options_key;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [number, job] : jobs_) {
      if (request.job() != 0 && number != request.job()) continue;
      if (!request.run().empty() && job.row.run_name() != request.run()) continue;
      *response.add_jobs() = job.Describe();
      response.mutable_jobs(response.jobs_size() - 1)->set_now_unix_us(UnixNow());
      options_key = job.Key(MetaSpace::kJob);
    }
  }
  if (request.job() == 0) return response;
  if (response.jobs().empty()) return NoJob(request.job());
  auto row = store_->database().Find<storage::JobRow>(options_key);
  if (!row.ok()) return row.status();
  if (row->has_value()) response.mutable_jobs(0)->set_options((*row)->options());
  return response;
}

absl::StatusOr<v1::Job> JobQueue::Cancel(uint32_t number, const Caller& caller) {
  v1::Job answer;
  {
    absl::MutexLock lock(&mu_);
    auto job = FindOwn(number, caller);
    if (!job.ok()) return job.status();
    if (!(*job)->ended()) {
      storage::JobProgressRow progress = (*job)->progress;
      progress.set_cancelled(true);
      progress.set_ended_unix_us(UnixNow());
      ChangeSet changes;
      changes.DeletePrefix(Family::kMeta, (*job)->Key(MetaSpace::kJobLease));
      changes.DeletePrefix(Family::kMeta, (*job)->Key(MetaSpace::kJobReturned));
      changes.PutMeta((*job)->Key(MetaSpace::kJobProgress), progress);
      if (absl::Status status = Write(**job, changes, progress); !status.ok()) return status;
      for (uint64_t lease : leases_.OfJob(number)) leases_.Remove(lease);
      returned_ -= (*job)->returned.size();
      (*job)->returned.clear();
      (*job)->leased = 0;
      Changed(**job);
    }
    answer = (*job)->Describe();
  }
  if (absl::Status status = Durable(); !status.ok()) return status;
  return answer;
}

absl::Status JobQueue::Delete(uint32_t number, const Caller& caller) {
  {
    absl::MutexLock lock(&mu_);
    auto job = FindOwn(number, caller);
    if (!job.ok()) return job.status();
    if (!(*job)->ended()) {
      return absl::FailedPreconditionError(Cat("job ", number, " is running; cancel it, then delete it"));
    }
    ChangeSet changes;
    JobRows::AddJobDeletion((*job)->row.run(), number, changes);
    if (absl::Status status = Write(**job, changes, (*job)->progress); !status.ok()) return status;
    Forget(number);
  }
  return Durable();
}

absl::Status JobQueue::ReadResults(const v1::ReadResultsRequest& request, absl::FunctionRef<bool()> cancelled,
                                   absl::FunctionRef<bool(const v1::ItemResult&)> send) {
  const Database& database = store_->database();
  uint64_t next = request.after();
  while (true) {
    uint32_t run = 0, results = 0;
    bool ended = false, durable = false;
    {
      absl::MutexLock lock(&mu_);
      auto job = Find(request.job());
      if (!job.ok()) return job.status();
      run = (*job)->row.run();
      results = Results((*job)->progress);
      ended = (*job)->ended();
      durable = (*job)->durable >= results;
      if (next >= results && request.follow() && !ended) {
        if (stopping_) return absl::UnavailableError("this server is shutting down; ask again later");
        if (waiting_ >= options_.max_waiting) {
          return absl::ResourceExhaustedError(
              Cat(waiting_, " calls wait already, which is the limit; read without follow"));
        }
        ++waiting_;
        changed_.WaitWithTimeout(&mu_, absl::Milliseconds(200));
        --waiting_;
      }
    }
    if (cancelled()) return absl::CancelledError("the client is gone");
    if (next >= results) {
      if (!request.follow() || ended) return absl::OkStatus();
      continue;
    }
    // What a crash could take back is not shown.
    if (!durable) {
      if (absl::Status status = Durable(); !status.ok()) return status;
      absl::MutexLock lock(&mu_);
      auto job = Find(request.job());
      if (job.ok()) (*job)->durable = std::max((*job)->durable, results);
    }
    for (; next < results; ++next) {
      const auto order = static_cast<uint32_t>(next);
      auto result = database.Find<v1::ItemResult>(JobPartKey(MetaSpace::kJobResult, run, request.job(), order));
      if (!result.ok()) return result.status();
      if (!result->has_value()) return NoJob(request.job());  // deleted meanwhile
      const auto item = static_cast<uint32_t>((*result)->item());
      auto about = database.Find<v1::JobItem>(JobPartKey(MetaSpace::kJobItem, run, request.job(), item));
      if (!about.ok()) return about.status();
      if (about->has_value()) (*result)->set_name((*about)->name());
      if (!send(**result)) return absl::CancelledError("the client is gone");
    }
  }
}

void JobQueue::CountResult(v1::Outcome outcome, uint64_t run_us) {
  metrics_->Add(Metric::kJobResults, 1,
                {outcome == v1::OUTCOME_DONE     ? "done"
                 : outcome == v1::OUTCOME_FAILED ? "failed"
                                                 : "crashed"});
  if (outcome != v1::OUTCOME_CRASHED) metrics_->Observe(Metric::kJobItemSeconds, static_cast<double>(run_us) * 1e-6);
}

}  // namespace msprobe::server
