#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "msprobe/v1/control.pb.h"
#include "server/ingest/sessions.h"
#include "server/store/store.h"

namespace msprobe::server {

// Commands to the running processes of a run, down the streams on which they send, and their answers.
//
// Nothing is kept for a process that is not connected: a command is for those that run now.
// Threads: any. Borrowed objects outlive it.
class RunControl {
 public:
  RunControl(Sessions* sessions, Store* store) : sessions_(sessions), store_(store) {}

  // Sends the command, waits for the answers (or until `cancelled`), logs and keeps who asked. A status is not kept.
  // Errors as Control.ControlRun says.
  absl::Status Ask(const v1::ControlRunRequest& request, const std::string& asked_by,
                   const std::function<bool()>& cancelled, v1::ControlRunResponse* response);

  // A process says how it stands.
  void Report(const std::string& session, const v1::ControlReport& report);

 private:
  using Process = v1::ControlRunResponse::Process;

  absl::Status Check(const v1::ControlRunRequest& request) const;
  // Whether every process has answered what it is going to answer.
  bool Answered(const std::map<std::string, Process>& asked, uint64_t id, bool is_status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Note(const v1::ControlRunRequest& request, const std::string& asked_by);

  Sessions* const sessions_;
  Store* const store_;
  absl::Mutex mu_;
  absl::CondVar reported_;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  // By session, of those that are being asked.
  absl::flat_hash_map<std::string, v1::ControlReport> reports_ ABSL_GUARDED_BY(mu_);
  int asking_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::server
