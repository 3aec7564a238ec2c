#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/ingest/events.h"
#include "server/metrics/metrics.h"
#include "server/monitor/watched_tensor.h"
#include "server/store/store.h"

namespace msprobe::server {

// Looks at steps as they end, on threads of its own. Ingest never waits for it.
class StepMonitor {
 public:
  virtual ~StepMonitor() = default;
  // As SessionObserver's: from any thread, without blocking.
  virtual void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) = 0;
  // The run was deleted, and its series with it.
  virtual void Forget(const std::string&) {}
  // Forgets what waits. Idempotent.
  virtual void Stop() {}
};

// What a monitor may ask of the server it is made for. Borrowed; outlives the monitor.
struct MonitorParts {
  Store* store = nullptr;
  Metrics* metrics = nullptr;
  bool scraped = false;                // somebody can read the metrics
  std::vector<WatchedTensor> watched;  // --watch
};

// All monitors of a server. A new one is a file that implements StepMonitor, and a line in StandardMonitors().
// Threads: any.
class StepMonitors : public SessionObserver {
 public:
  // Null: it has nothing to do on this server.
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
