#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/core/connector.h"
#include "agent/core/log.h"
#include "agent/core/spool.h"

namespace msprobe::core {

// Sends what processes before this one left in a spool directory: each session as the process that is gone would have,
// under its own id, so the server takes what it has not and nothing twice. A session of a process that lives is left
// to it. What cannot be sent stays where it is.
//
// Threads: Start and Stop from one.
class LeftSessions {
 public:
  using Connect = std::function<Connector(std::shared_ptr<Doorbell> bell)>;

  // log outlives this.
  LeftSessions(std::string directory, Connect connect, const Log* log);
  ~LeftSessions() { Stop(absl::ZeroDuration()); }

  // Starts a thread if there is anything. Call it before the process has a spool of its own.
  void Start();
  // Goes on for at most `timeout`, then leaves the rest. Idempotent.
  void Stop(absl::Duration timeout);

 private:
  void Run();
  absl::Status Send(Spool::Left left);

  const std::string directory_;
  const Connect connect_;
  const Log* const log_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
};

}  // namespace msprobe::core
