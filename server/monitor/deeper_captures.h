#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/control.pb.h"
#include "msprobe/v1/monitor.pb.h"
#include "server/monitor/keyed_workers.h"
#include "server/store/store.h"

namespace msprobe::server {

// Sends a command to the processes of a run and waits for their answers, as Control.ControlRun does.
using AskRun = std::function<absl::StatusOr<v1::ControlRunResponse>(
    const v1::ControlRunRequest& request, const std::string& asked_by, const std::function<bool()>& cancelled)>;

// Asks the processes of a run to capture the next steps deeper when an alarm of a rule with `capture` begins, as far as
// the rule's budget allows. The request is noted with the run, as a user's is.
// Threads: any; Stop not from a Done.
class DeeperCaptures {
 public:
  DeeperCaptures(Store* store, AskRun ask) : store_(store), ask_(std::move(ask)), workers_(1) {}
  ~DeeperCaptures() { Stop(); }

  // Says in the alarm, which is new, what is asked for or why not. earlier: the run's other alarms.
  void Decide(const v1::Rule& rule, const std::vector<v1::Alarm>& earlier, v1::Alarm& alarm) const;
  // Asks for what Decide has put into the alarm. `done` takes what became of it, on a thread of this object.
  using Done = std::function<void(v1::Alarm::Captured captured)>;
  void Begin(const std::string& run, const v1::Rule& rule, const v1::Alarm& alarm, Done done);
  // Drops what waits. Idempotent.
  void Stop();

  // Bytes of the records and tensors of the steps that were captured for the alarm, as far as this server has them.
  absl::StatusOr<uint64_t> BytesOf(uint32_t run, const v1::Alarm::Captured& captured) const;

 private:
  Store* const store_;
  const AskRun ask_;
  std::atomic<bool> stopping_ = false;
  KeyedWorkers workers_;
};

}  // namespace msprobe::server
