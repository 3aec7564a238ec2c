#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "msprobe/v1/jobs.pb.h"
#include "server/access/caller.h"
#include "server/jobs/lease_table.h"
#include "server/jobs/live_job.h"
#include "server/metrics/metrics.h"
#include "server/store/store.h"

namespace msprobe::server {

struct JobQueueOptions {
  size_t max_jobs = 10'000;
  size_t max_leased = 131'072;           // items that are leased or were returned, which are in memory
  size_t max_leased_of_a_peer = 32'768;  // items
  size_t max_waiting = 64;               // calls that wait for work or for results, each of which holds a thread
  std::function<absl::Time()> clock;     // for deadlines; never goes back. Empty: the machine's, since its start
};

// The durable work queue: jobs of many items, which workers lease and give results for. It knows nothing of what a kind
// means. proto/msprobe/v1/jobs.proto says what each call does.
//
// 1. A change is written before it is seen, and durable before its call returns. Changes of many calls share a sync.
// 2. An item is in one place (storage::JobProgressRow). It gets its result in the write that takes it off its lease, so
//    it never gets two.
// 3. A lease whose deadline passes is returned. Which of its items was running is known only if it has one: then that
//    one has lost an attempt. Else all wait to be leased alone, so that an item that ends its worker takes no others
//    with it.
// 4. Memory: about 1 KiB a job, and 100 bytes for each item that is leased or was returned.
// 5. After a restart every lease gets its whole time again.
// Threads: every method from any thread.
class JobQueue {
 public:
  // Borrows the store and the metrics.
  JobQueue(Store* store, Metrics* metrics, JobQueueOptions options = {});

  // Reads the jobs of the store. Call once, before anything else.
  absl::Status Load();
  // Returns leases whose deadline has passed, forgets jobs whose run is gone, and publishes the gauges. Call about
  // every 200 ms.
  void Tick();
  // Ends the calls that wait. New ones do not wait any more.
  void Stop();

  absl::StatusOr<v1::Job> Create(const v1::CreateJobRequest& request, const Caller& caller);
  absl::StatusOr<v1::Job> AddItems(const v1::AddItemsRequest& request, const Caller& caller);
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::Job> Cancel(uint32_t job, const Caller& caller);
  absl::Status Delete(uint32_t job, const Caller& caller);
  // `send` false: nobody listens any more.
  absl::Status ReadResults(const v1::ReadResultsRequest& request, absl::FunctionRef<bool()> cancelled,
                           absl::FunctionRef<bool(const v1::ItemResult&)> send);

  absl::StatusOr<v1::LeaseResponse> TakeLease(const v1::LeaseRequest& request, const Caller& caller,
                                              absl::FunctionRef<bool()> cancelled);
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request);
  absl::StatusOr<v1::FinishResponse> Finish(const v1::FinishRequest& request);
  absl::StatusOr<v1::ReturnResponse> Return(const v1::ReturnRequest& request);
  absl::Status ReadPayload(const v1::ReadPayloadRequest& request, absl::FunctionRef<bool(std::string_view)> send);

 private:
  // How a lease ends. `crashes`: items whose worker died, with its last words. `alone`: the others are suspects.
  struct Ending {
    std::map<uint32_t, std::string> crashes;
    bool alone = false;
    std::string worker;
  };

  absl::Status LoadJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LoadLeases() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Durable();
  int64_t UnixNow() const { return absl::ToUnixMicros(store_->Now()); }

  // NotFound names the job.
  absl::StatusOr<LiveJob*> Find(uint32_t job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same, and PermissionDenied.
  absl::StatusOr<LiveJob*> FindOwn(uint32_t job, const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const LiveJob* FindToken(const std::string& run, const std::string& token) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Writes changes of a job and, when they are written, takes its progress over. A job whose run is gone is forgotten.
  absl::Status Write(LiveJob& job, const ChangeSet& changes, const storage::JobProgressRow& progress)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget(uint32_t job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Changed(const LiveJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The next job, in turn, that has work for such a worker; null: there is none.
  LiveJob* NextReady(const v1::LeaseRequest& request, const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False: the limits leave no room for another leased item.
  bool Room(const v1::LeaseRequest& request, const Caller& caller, size_t& items) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  absl::StatusOr<v1::LeaseResponse> Grant(LiveJob& job, size_t most, const v1::LeaseRequest& request,
                                          const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds items from `first` to before `end`, none of which was leased yet, to the answer, as long as payloads fit.
  absl::Status AddFresh(const LiveJob& job, uint32_t first, uint32_t end, size_t& bytes,
                        v1::LeaseResponse& response) const;
  // Adds an item that was returned. False: its payload does not fit any more.
  absl::StatusOr<bool> AddReturned(const LiveJob& job, const TriedItem& item, size_t& bytes,
                                   v1::LeaseResponse& response) const;

  absl::StatusOr<v1::FinishResponse> Refuse(const v1::FinishRequest& request, const LiveJob& job,
                                            const std::vector<const v1::FinishRequest::Result*>& results, bool expired);
  absl::StatusOr<v1::ReturnResponse> End(const Lease& lease, const Ending& ending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Expire() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountResult(v1::Outcome outcome, uint64_t run_us);

  Store* const store_;
  Metrics* const metrics_;
  const JobQueueOptions options_;

  mutable absl::Mutex mu_;
  absl::CondVar changed_;  // there is more to lease or to read, or stopping_
  std::map<uint32_t, LiveJob> jobs_ ABSL_GUARDED_BY(mu_);
  std::set<uint32_t> ready_ ABSL_GUARDED_BY(mu_);  // jobs with LiveJob::ready
  LeaseTable leases_ ABSL_GUARDED_BY(mu_);
  size_t returned_ ABSL_GUARDED_BY(mu_) = 0;  // items, over all jobs
  uint32_t last_ ABSL_GUARDED_BY(mu_) = 0;    // job of the last lease
  size_t waiting_ ABSL_GUARDED_BY(mu_) = 0;   // calls
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time swept_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::BitGen random_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::server
