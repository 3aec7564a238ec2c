#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/jobs/job_queue.h"
#include "server/metrics/metrics.h"
#include "server/monitor/step_monitors.h"
#include "server/store/store.h"

namespace msprobe::server {

// Task check: gives the calls that runs capture to the workers of the queue while the runs go on, and shows what came
// of them in the metrics.
//
// 1. A run has one open job of kind "check" and title kTitle. An item is one call in one direction, as soon as its
// record
//    and its payloads are here. The job is sealed when the run's last session has ended; a later session opens another.
// 2. With a run as golden value an item waits until that run has ended the same step, at most kGoldenPatience.
// 3. Nobody waits for a verdict. At most kMaxUnchecked items of a run wait for one, and at most kMaxSteps steps to be
//    looked at; what comes beyond that is counted as left out (of a step, each batch that brings news of it).
// 4. A server that begins goes on with the jobs that are open, behind the steps that they have.
// Threads: any. The work is done by one of its own.
class LiveChecks : public StepMonitor {
 public:
  static constexpr char kTask[] = "check";
  static constexpr char kTitle[] = "live";
  static constexpr uint64_t kMaxUnchecked = 10'000;
  static constexpr size_t kMaxSteps = 4096;
  static constexpr absl::Duration kPeriod = absl::Milliseconds(50);
  static constexpr absl::Duration kGoldenPatience = absl::Minutes(10);

  // All are borrowed.
  LiveChecks(Store* store, JobQueue* jobs, Metrics* metrics) : store_(store), jobs_(jobs), metrics_(metrics) {}
  ~LiveChecks() override { Stop(); }

  absl::Status Begin(Sessions* sessions) override;
  void OnRecords(const storage::SessionRow& session, uint32_t step) override;
  void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) override;
  void Forget(const std::string& run) override;
  void Stop() override;

 private:
  using Place = std::pair<std::string, uint32_t>;  // session and step

  // A step that has records which no item was made of yet.
  struct Waiting {
    absl::Time since, latest;                 // its first news and its latest
    std::set<std::string> done;               // names of records with an item, or left out
    bool changed = true;                      // there is news
    bool whole = false;                       // every record that has come has its item
    absl::Time again = absl::InfinitePast();  // when to look without news
  };
  // A job that was not through when it was last looked at.
  struct Live {
    std::string run;
    bool sealed = false;
    bool cancelled = false;  // by somebody: nothing more of the run is checked
    uint64_t items = 0;
    uint64_t results = 0;                      // that are in the metrics
    std::map<uint64_t, absl::Time> unchecked;  // items without a result that this process added, with their news
    std::string golden;                        // a run; empty: workers compute it
  };

  void Run();
  void Look(absl::Time now);
  void TakeNews();
  // Takes up a job that an earlier process of this server left open.
  absl::Status GoOn(const v1::Job& job);
  // True: every record of the step that will come has its item.
  absl::StatusOr<bool> LookAt(const Place& place, Waiting& waiting, absl::Time now);
  absl::StatusOr<bool> HasPayloads(const v1::Record& record) const;
  // Whether the golden run has what this step is compared with.
  absl::StatusOr<bool> GoldenIsThere(const Live& live, const StepKey& step) const;
  // The open job of the session's run, which is made if there is none.
  absl::StatusOr<uint32_t> JobOf(const storage::SessionRow& session);
  absl::Status Add(uint32_t job, v1::AddItemsRequest request, absl::Time news);
  absl::Status CountResults(uint32_t job, Live& live);
  // Learns of jobs that somebody cancelled.
  void SeeCancelled();
  absl::Status SealEnded();
  // Whether sessions of a run are open, or have steps that were not looked at.
  absl::StatusOr<bool> GoesOn(const std::string& run) const;

  Store* const store_;
  JobQueue* const jobs_;
  Metrics* const metrics_;

  // Of the thread alone.
  std::map<Place, Waiting> steps_;
  std::map<uint32_t, Live> live_;  // by number of the job
  absl::Time swept_ = absl::InfinitePast();

  absl::Mutex mu_;
  std::map<Place, absl::Time> news_ ABSL_GUARDED_BY(mu_);  // when the first came that was not looked at
  std::set<Place> finished_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> forgotten_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

std::unique_ptr<StepMonitor> MakeLiveChecks(const MonitorParts& parts);

}  // namespace msprobe::server
