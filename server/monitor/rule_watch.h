#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/analysis/table/table_layouts.h"
#include "server/metrics/metrics.h"
#include "server/monitor/keyed_workers.h"
#include "server/monitor/notices/notices.h"
#include "server/monitor/run_rules.h"
#include "server/monitor/step_monitors.h"
#include "server/store/store.h"

namespace msprobe::server {

// Shows scalars and finished steps to the rules of their run, on a thread of its own, and keeps the alarms in the
// store. Rules that change while a run goes on watch from the next points on.
//
// 1. A step is read only if a rule wants its tensors (RunRules::WantsTensors).
// 2. At most kMaxWaiting bytes of scalars and tokens and kMaxSteps steps wait; further ones are counted as skipped.
//    Ingest never waits.
// 3. The kMaxRuns runs that were seen last are remembered. Of others, and after a restart of the server, watches begin
//    anew; alarms do not.
// 4. Imported runs are ignored, because nobody is to be woken for them.
// 5. What rules did not see because a shard was missing is counted as skipped, and logged.
// 6. An alarm ends with its episode, and with the last open session of its run.
// Threads: any.
class RuleWatch : public StepMonitor {
 public:
  static constexpr int64_t kMaxWaiting = int64_t{64} << 20;
  static constexpr int kMaxSteps = 256;
  static constexpr size_t kMaxRuns = 256;

  // The store and the metrics are borrowed.
  explicit RuleWatch(const MonitorParts& parts);

  void OnScalars(const std::string& session, const std::vector<ScalarPoint>& points) override;
  void OnResponses(const std::string& session, const std::vector<ResponseToken>& tokens) override;
  void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) override;
  void OnSessionClosed(const storage::SessionRow& session) override;
  absl::Status Begin(Sessions* sessions) override;
  void Forget(const std::string& run) override;
  size_t waiting() const override { return workers_.busy_keys(); }
  bool AwaitDone(absl::Duration timeout) const override { return workers_.AwaitIdle(timeout); }
  void Stop() override;

 private:
  // Runs on the worker's thread, as do the next ones.
  absl::Status LookAtScalars(const std::string& session, const std::vector<ScalarPoint>& points);
  absl::Status LookAtResponses(const std::string& session, const std::vector<ResponseToken>& tokens);
  absl::Status LookAtStep(const std::string& session, uint32_t step);
  // Holds the signs of the step's gradients against those of another run. Nothing where that has no such step.
  absl::Status LookAtSigns(const storage::SessionRow& session, uint32_t step, const std::string& golden,
                           RunRules& rules);
  // The step of the same rank. NotFound: there is none.
  absl::StatusOr<std::unique_ptr<RecordSource>> OpenGolden(const std::string& run, uint32_t step,
                                                           const v1::Rank& rank) const;
  // The rules of the session's run as they are now; null: nobody watches it.
  absl::StatusOr<RunRules*> RulesOf(const storage::SessionRow& session);
  // Stores the alarms that are new or changed. key: the step that was looked at; null: scalars.
  absl::Status Keep(const storage::SessionRow& session, RunRules& rules, const StepKey* key);
  // Ends the alarms of the run that go on, if none of its sessions is open. Points may still come: a session is seen
  // closed before its last ones, and another rank may begin.
  absl::Status EndAlarms(uint32_t run);
  // Stores these alarms of a run, and has receivers told of those whose rule is not silent.
  absl::Status Put(uint32_t run, const std::vector<v1::Alarm*>& alarms, const v1::RuleSet& rules);
  // Says in alarms that are new what is captured for them.
  absl::Status DecideCaptures(uint32_t run, const std::vector<v1::Alarm*>& raised, const v1::RuleSet& rules);
  // What became of a capture.
  absl::Status NoteCaptured(uint32_t run, uint32_t number, const v1::Alarm::Captured& captured);
  void AddStack(const StepKey& key, v1::Alarm& alarm);
  // Has the program whose offence it is say so.
  void TellProgram(const std::string& session, const v1::Alarm& alarm) const;

  struct Watched {
    std::unique_ptr<RunRules> rules;
    bool are_own = false;  // they were set for this run
    uint64_t used = 0;
  };

  Store* const store_;
  Metrics* const metrics_;
  const v1::RuleSet rules_;
  const Sessions* sessions_ = nullptr;      // null before Begin
  const std::unique_ptr<Notices> notices_;  // null: nobody outside the server hears of alarms
  std::atomic<int64_t> waiting_bytes_ = 0;
  std::atomic<int> waiting_steps_ = 0;
  // Used by the worker thread alone.
  TableLayouts layouts_;
  std::map<uint32_t, Watched> runs_;
  uint64_t used_ = 0;
  KeyedWorkers workers_;
  std::unique_ptr<DeeperCaptures> captures_;  // null: nobody can be asked
};

std::unique_ptr<StepMonitor> MakeRuleWatch(const MonitorParts& parts);

}  // namespace msprobe::server
