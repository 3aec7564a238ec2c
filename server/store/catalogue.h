#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "msprobe/v1/ingest.pb.h"
#include "msprobe/v1/query.pb.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/change_set.h"
#include "server/store/database.h"

namespace msprobe::server {

// The runs and sessions of a store, and the row of the server itself.
//
// A run gets a number when it is first named, and a session gets an epoch within its run. Neither is used again.
// Threads: every method from any thread.
class Catalogue {
 public:
  // The database must outlive this object.
  explicit Catalogue(Database* database) : database_(database) {}

  // Reads the server's row, or makes one in a new store. Call once, before anything else. FailedPrecondition: the store
  // has a storage format that this server does not read.
  absl::Status Load();
  const std::string& server_id() const { return server_id_; }

  // The row of a known session id, or a new one (in a new run where the name is new, which then belongs to `owner`).
  // FailedPrecondition: the session is known under another run.
  absl::StatusOr<storage::SessionRow> RegisterSession(const v1::Hello& hello, const std::string& owner = "");
  // The run of this name. Where there is none, a new one with these shards and this owner.
  absl::StatusOr<storage::RunRow> PlaceRun(const std::string& name, const std::vector<std::string>& shards,
                                           const std::string& owner = "");

  absl::StatusOr<std::vector<storage::RunRow>> Runs() const;
  // Nothing: there is no such run.
  absl::StatusOr<std::optional<storage::RunRow>> LookUpRun(const std::string& name) const;
  // NotFound names the run and those that exist.
  absl::StatusOr<storage::RunRow> FindRun(const std::string& name) const;
  // Of all runs, or of one.
  absl::StatusOr<std::vector<storage::SessionRow>> Sessions(std::optional<uint32_t> run = std::nullopt) const;
  absl::StatusOr<storage::SessionRow> SessionOfEpoch(uint32_t run, uint32_t epoch) const;

  // A number that no job of this store has had.
  absl::StatusOr<uint32_t> TakeJobNumber();

  // NotFound as FindRun.
  absl::Status SetPinned(const std::string& name, bool pinned);
  // Keeps what was asked of the run's processes, the latest hundred. NotFound as FindRun.
  absl::Status NoteControl(const std::string& name, const v1::ControlNote& note);

  // Adds what forgets a run and its sessions. FailedPrecondition: a session of the run is open.
  absl::Status AddRunDeletion(const storage::RunRow& run, const std::vector<storage::SessionRow>& sessions,
                              ChangeSet& changes) const;
  // Held while a run is made, changed or deleted.
  absl::Mutex& registry_mutex() const ABSL_LOCK_RETURNED(registry_mutex_) { return registry_mutex_; }

 private:
  // The run of this name, or a new one, which `changes` and `server` then hold.
  absl::StatusOr<storage::RunRow> RunOrNew(const std::string& name, const std::string& owner,
                                           storage::ServerRow& server, ChangeSet& changes) const;

  Database* const database_;
  std::string server_id_;  // constant after Load
  mutable absl::Mutex registry_mutex_;
  storage::ServerRow server_ ABSL_GUARDED_BY(registry_mutex_);
};

// When a session was opened, in microseconds since 1970: by the server's clock, or by the agent's in a row that an
// earlier version wrote.
inline int64_t OpenedUnixUs(const storage::SessionRow& session) {
  return session.opened_unix_us() != 0 ? session.opened_unix_us() : session.hello().started_unix_us();
}

}  // namespace msprobe::server
