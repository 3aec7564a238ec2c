#pragma once

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "agent/core/log.h"
#include "agent/core/mutex.h"
#include "agent/core/transport/left/left_session.h"

namespace msprobe::server {

struct AdoptionsOptions {
  // An embedded server's dump_path: the server adopts the sessions beside the spool there that were meant for an
  // embedded server. Empty: this is a permanent server, which adopts the sessions in shared_directory that named one of
  // its addresses.
  std::string dump_path;
  std::string shared_directory = core::SharedFile::kDirectory;
  // A session that makes no progress for this long is left to others.
  absl::Duration patience = absl::Seconds(60);
};

// Adopts sessions whose processes died before this server had received everything. It sends what they left to this
// server in their place (core::LeftSession), even if the server has never heard of the session.
//
// Threads: Start and Stop from one; the rest from any.
class Adoptions {
 public:
  explicit Adoptions(AdoptionsOptions options);
  ~Adoptions() { Stop(); }

  // Call once the server is serving. `addresses`: where it listens.
  void Start(std::vector<std::string> addresses);
  void Stop();

  // Whether more of this session may still arrive: its process lives, or its memory waits for adoption.
  bool Awaits(const std::string& session) const;
  // The directory has been searched at least once.
  bool looked() const { return looked_; }
  // For an embedded server, after the first search: no process that uses it is alive, and no session is left to adopt.
  bool idle() const { return idle_; }

 private:
  void Run();
  // Searches the directory once and adopts every session whose process is dead.
  void Look();
  void Adopt(const std::string& name);
  bool IsOurs(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);
  bool NamesUs(const core::SessionOrigin& origin) const;
  // The session stays as it is and is ignored from now on.
  void Refuse(const std::string& name, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  const AdoptionsOptions options_;
  const std::string directory_;
  const core::Log log_;
  std::vector<std::string> addresses_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> looked_{false};
  std::atomic<bool> idle_{true};

  mutable core::Mutex mu_;
  core::CondVar stopped_;
  std::map<std::string, bool> ours_ ABSL_GUARDED_BY(mu_);  // IsOurs by name
  std::set<std::string> refused_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::server
