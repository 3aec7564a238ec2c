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
#include "server/ingest/session/sessions.h"
#include "server/store/catalogue.h"

namespace msprobe::server {

// Sends commands to the running processes of a run, over the streams on which they send records, and collects their
// answers.
//
// A command is for the processes that are connected now; nothing is kept for others.
// Threads: any. Borrowed objects outlive it.
class RunControl {
 public:
  RunControl(Sessions* sessions, Catalogue* catalogue) : sessions_(sessions), catalogue_(catalogue) {}

  // Sends the command, waits for the answers (or until `cancelled`), and logs who asked. Commands other than a status
  // are also noted with the run. Errors: see Control.ControlRun.
  absl::Status Ask(const v1::ControlRunRequest& request, const std::string& asked_by,
                   const std::function<bool()>& cancelled, v1::ControlRunResponse* response);

  // Takes a process's answer.
  void Report(const std::string& session, const v1::ControlReport& report);

 private:
  using Process = v1::ControlRunResponse::Process;

  absl::Status Check(const v1::ControlRunRequest& request) const;
  // Whether no further answer is to be expected.
  bool Answered(const std::map<std::string, Process>& asked, uint64_t id, bool is_status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Note(const v1::ControlRunRequest& request, const std::string& asked_by);

  Sessions* const sessions_;
  Catalogue* const catalogue_;
  absl::Mutex mu_;
  absl::CondVar reported_;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  // The latest answer of each session, while somebody asks.
  absl::flat_hash_map<std::string, v1::ControlReport> reports_ ABSL_GUARDED_BY(mu_);
  int asking_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::server
