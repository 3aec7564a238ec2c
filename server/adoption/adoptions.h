#pragma once

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "agent/core/log.h"
#include "agent/core/transport/left_session.h"

namespace msprobe::server {

struct AdoptionsOptions {
  // Of an embedded server: it adopts what is beside the spool of this directory and was for such a server. Empty: a
  // server that stays, which adopts what is in shared_directory and had named one of its addresses.
  std::string dump_path;
  std::string shared_directory = core::SharedFile::kDirectory;
  // Without progress, before a session is left to others.
  absl::Duration patience = absl::Seconds(60);
};

// Adopts the sessions that this server was to have and whose processes died before it had all: sends them to this
// server as their processes would have (core::LeftSession), whether it has heard of them or not.
//
// Threads: Start and Stop from one; the rest from any.
class Adoptions {
 public:
  explicit Adoptions(AdoptionsOptions options);
  ~Adoptions() { Stop(); }

  // `addresses` are where this server listens. When it serves.
  void Start(std::vector<std::string> addresses);
  void Stop();

  // Whether something of this session lies there that may still come: its process lives, or it is to be adopted.
  bool Awaits(const std::string& session) const;
  // It has looked once.
  bool looked() const { return looked_; }
  // Of an embedded server that has looked: no process of its dump_path lives that it is for, and nothing is left to be
  // adopted.
  bool idle() const { return idle_; }

 private:
  void Run();
  // Adopts what is there and dead.
  void Look();
  void Adopt(const std::string& name);
  bool IsOurs(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);
  bool NamesUs(const core::SessionOrigin& origin) const;
  // It stays as it is, and is not looked at again.
  void Refuse(const std::string& name, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  const AdoptionsOptions options_;
  const std::string directory_;
  const core::Log log_;
  std::vector<std::string> addresses_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> looked_{false};
  std::atomic<bool> idle_{true};

  mutable absl::Mutex mu_;
  std::map<std::string, bool> ours_ ABSL_GUARDED_BY(mu_);  // what was found out by name
  std::set<std::string> refused_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::server
