#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/access/caller.h"
#include "server/ingest/payload/agent_memory.h"
#include "server/ingest/session/live_session.h"
#include "server/ingest/session/process_check.h"

namespace msprobe::server {

struct SessionsOptions {
  std::string version;
  std::vector<std::string> capabilities;
  // How long the server waits for a session without a transport when nothing is known of its process.
  absl::Duration grace = absl::Seconds(60);
  // The most sessions that have neither ended nor been lost. One more is refused with RESOURCE_EXHAUSTED.
  size_t max_open = 4096;
  // The most ranks of one run on this server. A session of one more rank is refused likewise. 0: no limit.
  size_t max_ranks = 0;
  // Whether a run may take more. Empty: always. Called often: it must be cheap.
  std::function<absl::Status(uint32_t run)> admit;
  // Empty: nothing is known of any process.
  ProcessCheck check_process;
  // Where agents of this machine may keep the files that they share.
  std::vector<std::string> shared_directories = {AgentMemory::kDirectory};
};

// PermissionDenied: a run of this owner (storage::RunRow) is not the caller's to send to.
absl::Status CheckOwner(const std::string& run, const std::string& owner, const Caller& caller);

// All sessions in use or unfinished.
//
// 1. A session without users is lost as soon as its process is known to be gone; without such knowledge, after `grace`.
//    It waits as long as its process is known to live.
// 2. A lost session that comes back is open again, and so are its incomplete steps.
// 3. A run belongs to the caller who makes it, if that caller has an identity. Sessions of other callers are refused,
//    unless they are admins.
// Threads: every method from any thread. Outlives its sessions' users.
class Sessions : public SessionOpener {
 public:
  // All are borrowed, and must outlive this object.
  Sessions(Store* store, Metrics* metrics, SessionObserver* observer, SessionsOptions options);
  // Waits until every session's callbacks about what is durable have run.
  ~Sessions() override;

  // After a restart: sessions that were open are waited for. Call once, before serving.
  absl::Status Recover();

  // The handle is the session's user until it is destroyed. OpenSession opens for a caller without identity.
  absl::StatusOr<std::shared_ptr<Session>> OpenSession(const v1::Hello& hello) override;
  absl::StatusOr<std::shared_ptr<Session>> OpenStream(const v1::Hello& hello, std::weak_ptr<SessionListener> listener,
                                                      const Caller& caller);

  // Null: the session is finished and not in use, or unknown.
  std::shared_ptr<LiveSession> Find(const std::string& session) const;
  // Loads the session from the store if it is not in memory. NotFound: there is none.
  absl::StatusOr<std::shared_ptr<LiveSession>> FindOrLoad(const std::string& session);

  const std::vector<std::string>& shared_directories() const { return options_.shared_directories; }

  // Decides which sessions without users are lost, and drops finished ones from memory. Call about every 200 ms.
  void Tick();

  // From now on OpenSession answers Unavailable.
  void Drain();

  // How many sessions have users or are unfinished.
  size_t active() const;
  // Whether there ever was a session.
  bool any_ever() const;
  bool has_users_in(uint32_t run) const;
  // The sessions that a process is connected to now, of all runs and of one.
  std::vector<std::shared_ptr<LiveSession>> Connected() const;
  std::vector<std::shared_ptr<LiveSession>> ConnectedTo(uint32_t run) const;

 private:
  std::vector<std::shared_ptr<LiveSession>> All() const;
  // Whether nobody will come back to a session that has no user.
  bool IsGone(const LiveSession& session) const;
  void PayloadArrived(const std::string& hash);
  // ResourceExhausted: the run has as many ranks as it may have, and this is one more.
  absl::Status CheckRanks(const v1::Hello& hello) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Welcome.unexported_steps, where they are asked for.
  absl::Status AddUnexported(const v1::Hello& hello, const LiveSession& session, v1::Welcome& welcome) const;

  SessionContext context_;
  const SessionsOptions options_;
  mutable absl::Mutex mu_;
  std::map<std::string, std::shared_ptr<LiveSession>> sessions_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, std::set<uint32_t>> ranks_ ABSL_GUARDED_BY(mu_);  // by run, where it was needed
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool any_ever_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace msprobe::server
