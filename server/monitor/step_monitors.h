#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/ingest/session/events.h"
#include "server/metrics/metrics.h"
#include "server/monitor/watched_tensor.h"
#include "server/store/store.h"

namespace msprobe::server {

// Looks at steps when they end. Ingest never waits for a monitor, so real work belongs on threads of the monitor's own.
class StepMonitor {
 public:
  virtual ~StepMonitor() = default;
  // A step has ended. Called from any thread; must not block.
  virtual void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) = 0;
  // The run was deleted, and its metric series with it.
  virtual void Forget(const std::string&) {}
  // Drops the steps that still wait. Idempotent.
  virtual void Stop() {}
};

// The parts of the server that a monitor may use. Borrowed; they outlive the monitor.
struct MonitorParts {
  Store* store = nullptr;
  Metrics* metrics = nullptr;
  bool scraped = false;                // the server has a metrics port
  std::vector<WatchedTensor> watched;  // --watch
};

// All monitors of a server. A new monitor is one file that implements StepMonitor and one line in StandardMonitors().
// Threads: any.
class StepMonitors : public SessionObserver {
 public:
  // Makes a monitor. Returns null if it has nothing to do on this server.
  using Make = std::function<std::unique_ptr<StepMonitor>(const MonitorParts& parts)>;

  StepMonitors(const std::vector<Make>& all, const MonitorParts& parts);

  void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) override;
  void OnExportRequested(const std::string&, uint32_t) override {}
  void OnExportAwaited(const std::string&, uint32_t) override {}
  void OnRankKnown(const std::string&, const v1::Rank&, const v1::Rank&) override {}

  void Forget(const std::string& run);
  void Stop();

 private:
  std::vector<std::unique_ptr<StepMonitor>> monitors_;
};

std::vector<StepMonitors::Make> StandardMonitors();

}  // namespace msprobe::server
