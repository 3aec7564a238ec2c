#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
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
#include "server/monitor/check_settings.h"
#include "server/monitor/step_monitors.h"
#include "server/store/store.h"

namespace msprobe::server {

// Task check: gives the calls that runs capture to the workers of the queue while the runs go on, and shows what came
// of them in the metrics.
//
// 1. A run has one open job of kind "check" and title kTitle. An item is one call in one direction, as soon as its
// record
//    and its payloads are here. The job is sealed when the run's last session has ended; a later session opens another.
// 2. With a run as golden value an item waits for the same call there, at most the golden_wait_s of the configuration.
//    One that waits in vain becomes an item that says why, and its verdict is "skip".
// 3. Nobody waits for a verdict. At most kMaxUnchecked items of a run wait for one, and at most kMaxSteps steps to be
//    looked at; what comes beyond that is counted as left out (of a step, each batch that brings news of it).
// 4. A server that begins goes on with the jobs that are open, behind the steps that they have.
// 5. When all calls of a step have their verdicts, the tensors of those that pass or are skipped go (unless "keep" is
//    "all"), and those of the golden run's step with them if that run is there for this one alone (golden "none").
//    Without a run that is held against it, they go after golden_wait_s. A server that dies in between does it when
//    it begins again. Where a job is cancelled, or steps are left out by kMaxSteps, they stay.
// Threads: any. The work is done by one of its own.
class LiveChecks : public StepMonitor {
 public:
  static constexpr char kTask[] = "check";
  static constexpr char kTitle[] = "live";
  static constexpr uint64_t kMaxUnchecked = 10'000;
  static constexpr size_t kMaxSteps = 4096;
  static constexpr absl::Duration kPeriod = absl::Milliseconds(50);

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

  // A step that has records without an item, or items without a verdict.
  struct Waiting {
    absl::Time since, latest;                 // its first news and its latest
    std::string run;                          // of its session
    std::optional<CheckSettings> settings;    // of its session, once it was looked at
    std::set<std::string> seen;               // names of records that are here with their tensors
    std::vector<std::string> ready;           // those that have no item yet: a golden run is waited for
    bool changed = true;                      // there is news
    bool whole = false;                       // every record that has come is seen
    bool through = false;                     // every record that will come has its item, or was left out
    bool lost = false;                        // with its session, which may come back and go on with it
    absl::Time again = absl::InfinitePast();  // when to look without news
    uint64_t unjudged = 0;                    // items without a verdict
    std::set<std::string> kept;               // names of records whose tensors stay
    std::set<uint32_t> judges;                // ranks of the run that is held against this one that are through with it
    bool judged = false;                      // by all of these
    bool stays = false;                       // all of it: nobody judges it any more
  };
  // An item without a result.
  struct Unchecked {
    absl::Time news;
    Place place;
    std::string record;
  };
  // A job that was not through when it was last looked at.
  struct Live {
    std::string run;
    bool sealed = false;
    bool cancelled = false;  // by somebody: nothing more of the run is checked
    uint64_t items = 0;
    uint64_t results = 0;  // that are in the metrics
    std::map<uint64_t, Unchecked> unchecked;
    std::string golden;  // a run; empty: workers compute it
  };

  void Run();
  void Look(absl::Time now);
  void TakeNews();
  // Takes up what an earlier process of this server left: the steps that were not released, and a job.
  absl::Status GoOnWith(const storage::RunRow& run);
  absl::Status GoOn(const v1::Job& job, const storage::RunRow& run);
  // Places of the items of a job in steps_, by step and directory. begun: the directories with an item of the open job.
  using Directories = std::map<std::pair<uint32_t, std::string>, std::vector<Place>>;
  absl::StatusOr<Directories> TakeUp(const storage::RunRow& run, std::optional<uint32_t> last_step,
                                     const std::set<std::string>& begun);
  // True: every record of the step that will come has its item.
  absl::StatusOr<bool> LookAt(const Place& place, Waiting& waiting, absl::Time now);
  // Adds items for what is ready, but for what a golden run may still give.
  absl::Status AddReady(const Place& place, Waiting& waiting, uint32_t job, const StepKey& step, absl::Time now);
  // The word for a result; one of the metric's labels.
  static std::string_view VerdictOf(const v1::ItemResult& result);
  void Judge(const Unchecked& item, std::string_view verdict);
  // Whether everything of a step that is through is judged.
  bool IsJudged(const Waiting& waiting, absl::Time now) const;
  absl::Status Release(const Place& place, const Waiting& waiting);
  void ReleaseGolden(const std::string& golden, const StepKey& step, const std::set<std::string>& kept);
  // The open job of the session's run, which is made if there is none.
  absl::StatusOr<uint32_t> JobOf(const storage::SessionRow& session);
  absl::Status Add(uint32_t job, v1::AddItemsRequest request, const Place& place, Waiting& waiting);
  absl::Status CountResults(uint32_t job, Live& live);
  // Forgets steps whose verdicts do not come any more.
  void Drop(Live& live);
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
