#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "msprobe/v1/monitor.pb.h"
#include "server/ingest/session/events.h"
#include "server/metrics/metrics.h"
#include "server/monitor/deeper_captures.h"
#include "server/monitor/notices/notice_receiver.h"
#include "server/monitor/watched_tensor.h"
#include "server/store/store.h"

namespace msprobe::server {

class DumpRoom;
class JobQueue;
class Sessions;

// Looks at steps when they end. Ingest never waits for a monitor, so real work belongs on threads of the monitor's own.
class StepMonitor : public SessionObserver {
 public:
  // Only OnStepFinished must be implemented.
  void OnScalars(const std::string&, const std::vector<ScalarPoint>&) override {}
  void OnExportRequested(const std::string&, uint32_t) override {}
  void OnExportAwaited(const std::string&, uint32_t) override {}
  void OnRankKnown(const std::string&, const v1::Rank&, const v1::Rank&) override {}

  // Called once, before the first event. The sessions outlive the monitor's threads.
  virtual absl::Status Begin(Sessions*) { return absl::OkStatus(); }
  // The run was deleted, and its metric series with it.
  virtual void Forget(const std::string&) {}
  // The number of sessions with steps for whose sake the server stays: 0 if what waits may be dropped.
  virtual size_t waiting() const { return 0; }
  // False: some were still waiting after the timeout.
  virtual bool AwaitDone(absl::Duration) const { return true; }
  // Drops the steps that still wait. Idempotent.
  virtual void Stop() {}
};

// Where and how an embedded server writes the steps that end.
struct DumpOutput {
  std::string dump_path;  // empty: no steps are written
  mode_t umask = 022;     // for the files below dump_path
  int threads = 1;
};

// The parts of the server that a monitor may use. Borrowed; they outlive the monitor.
struct MonitorParts {
  Store* store = nullptr;
  Metrics* metrics = nullptr;
  bool scraped = false;                // the server has a metrics port
  std::vector<WatchedTensor> watched;  // --watch
  DumpOutput files = {};
  DumpRoom* room = nullptr;    // null only if files.dump_path is empty
  v1::RuleSet rules = {};      // of runs that have none of their own
  NoticeOptions notices = {};  // who hears of alarms
  AskRun ask = {};             // empty: nobody can be asked
  JobQueue* jobs = nullptr;
};

// All monitors of a server. A new monitor is one file that implements StepMonitor and one line in StandardMonitors().
// Threads: any.
class StepMonitors : public SessionObserver {
 public:
  // Makes a monitor. Returns null if it has nothing to do on this server.
  using Make = std::function<std::unique_ptr<StepMonitor>(const MonitorParts& parts)>;

  StepMonitors(const std::vector<Make>& all, const MonitorParts& parts);

  void OnRecords(const storage::SessionRow& session, uint32_t step) override;
  void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) override;
  void OnScalars(const std::string& session, const std::vector<ScalarPoint>& points) override;
  void OnResponses(const std::string& session, const std::vector<ResponseToken>& tokens) override;
  void OnExportRequested(const std::string& session, uint32_t step) override;
  void OnExportAwaited(const std::string& session, uint32_t step) override;
  void OnRankKnown(const std::string& session, const v1::Rank& from, const v1::Rank& to) override;
  void OnSessionClosed(const storage::SessionRow& session) override;

  // As the functions of StepMonitor, for all monitors.
  absl::Status Begin(Sessions* sessions);
  void Forget(const std::string& run);
  size_t waiting() const;
  bool AwaitDone(absl::Duration timeout) const;
  void Stop();

 private:
  std::vector<std::unique_ptr<StepMonitor>> monitors_;
};

std::vector<StepMonitors::Make> StandardMonitors();

}  // namespace msprobe::server
