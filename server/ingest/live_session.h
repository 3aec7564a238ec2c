#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "server/format/storage/structure_summary.h"
#include "server/ingest/events.h"
#include "server/ingest/payload_upload.h"
#include "server/ingest/session.h"
#include "server/metrics/metrics.h"
#include "server/store/store.h"

namespace msprobe::server {

struct StagedBatch;

// What every session of this server shares. Outlives them.
struct SessionContext {
  Store* store = nullptr;
  Metrics* metrics = nullptr;
  SessionObserver* observer = nullptr;                           // may be null
  std::function<void(const std::string& hash)> payload_arrived;  // tells the other sessions
  std::function<absl::Status(uint32_t run)> admit;               // empty: everything; see SessionsOptions
  std::vector<std::string> capabilities;
  std::string version;
  uint32_t max_batch_bytes = 8u << 20;
  uint32_t max_chunk_bytes = 1u << 20;
  size_t max_uploads = 64;  // payloads of one session under way at once
};

// A session the server knows, whether or not it has a user: a transport or an import.
//
// 1. Everything in memory is what the store holds: Apply changes memory only after the write succeeded.
// 2. A step leaves memory when it is finished: complete (ended, no payload missing) or incomplete.
// 3. The observer and the listener hear only of what is durable.
// 4. The user attached last is the only one who changes anything: what an earlier one still brings would be answered
//    where nobody listens, and its answer not repeated.
// Threads: Apply, AddPayload and AddWhole of one user from one thread at a time; the rest from any.
class LiveSession : public std::enable_shared_from_this<LiveSession> {
 public:
  // Reads the session's unfinished steps and missing payloads. A lost session is open again.
  static absl::StatusOr<std::shared_ptr<LiveSession>> Load(const SessionContext& context, storage::SessionRow row,
                                                           bool reopen);

  // As Session says, for the user of that number.
  absl::StatusOr<v1::PayloadVerdict> Apply(uint64_t user, const v1::Batch& batch);
  absl::StatusOr<v1::PayloadVerdict> AddPayload(uint64_t user, const v1::PayloadChunk& chunk, std::string_view content);
  absl::StatusOr<size_t> AddWhole(uint64_t user, std::span<const Session::WholePayload> payloads,
                                  v1::PayloadVerdict& verdict);
  uint64_t received_through() const;
  uint64_t durable_through() const;
  absl::Status AwaitDurable(absl::Duration timeout);

  // A user begins; the former one's listener hears that it is replaced. Where an agent has freed more batches than this
  // server holds (which was replaced or restored), the session goes on behind them. What `welcome` says has to be made
  // durable before it is passed on.
  struct User {
    uint64_t number = 0;
    v1::Welcome welcome;
  };
  absl::StatusOr<User> Attach(std::weak_ptr<SessionListener> listener, uint64_t freed_through);
  // One ceases.
  void Detach();
  // Received and not durable, and payloads announced and not whole.
  struct Backlog {
    uint64_t batches = 0, payloads = 0;
  };
  Backlog backlog() const;
  // Number of users; since when there is none.
  int users() const;
  // Passes a command to the process, if a stream of it is open.
  void Control(const v1::ControlCommand& command) const;
  void Tell(const v1::DumpRoom& room) const;
  absl::Time detached_since() const;

  storage::SessionRow row() const;
  // Neither ended nor lost, or ended with payloads still missing.
  bool unfinished() const;

  // Unfinished steps become incomplete, the session lost.
  absl::Status Lose();
  // A sync, which this session need not have asked for, covers batches up to here.
  void NoteDurable(uint64_t through);
  // A payload came from elsewhere.
  absl::Status ResolvePayload(const std::string& hash);
  // Files of a step are in place (or not: exported.error()): tells the listener, and remembers it where the step was
  // finished when it was read.
  absl::Status NoteExported(const v1::StepExported& exported, bool finished);

 private:
  struct OpenStep {
    storage::StepRow row;
    absl::flat_hash_set<uint64_t> records;  // hashes of (name, kind, direction, count) counted so far
  };
  struct PendingPayload {
    storage::PendingRow row;
    std::unique_ptr<PayloadUpload> upload;
    bool begun = true;  // false: none of its chunks can lie in the store
  };
  struct Durable {
    std::vector<std::pair<uint32_t, v1::StepSummary::State>> finished;
    std::vector<uint32_t> export_requests;
    std::vector<std::pair<v1::Rank, v1::Rank>> rank_changes;
    std::vector<std::string> stored;
  };

  LiveSession(const SessionContext& context, storage::SessionRow row) : context_(context), row_(std::move(row)) {}
  absl::Status CheckUser(uint64_t user) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  absl::Status SkipTo(uint64_t freed_through) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::Welcome Welcome() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Those that may be unfinished, without a look at the others of the run.
  absl::StatusOr<std::vector<Steps::Step>> StepsToLoad() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LoadSteps(bool reopen) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LoadPending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CountStoredRecords(uint32_t step, OpenStep& open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  StepKey KeyOf(uint32_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const StructureSummary* Structure(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasStack(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // apply_batch.cc
  absl::Status Stage(const v1::Batch& batch, StagedBatch& staged) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status StageDefinition(const v1::Definition& definition, StagedBatch& staged)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status StageBlock(const v1::Block& block, StagedBatch& staged) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status StagePayload(const v1::PayloadRef& payload, uint32_t step, StagedBatch& staged)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status StageMarker(const v1::Marker& marker, StagedBatch& staged) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The row of a step as the batch so far leaves it; null where there is none and `create` is false.
  absl::StatusOr<storage::StepRow*> StagedStep(uint32_t step, bool create, StagedBatch& staged)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status FinishStaging(StagedBatch& staged) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Adopt(StagedBatch& staged) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // live_session_payloads.cc
  bool HasPending(uint32_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds what a payload that is whole changes, and writes it.
  storage::PayloadRow RowOf(const PayloadUpload& upload) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  absl::Status FinishPayloads(std::span<const std::string> hashes, ChangeSet changes, Durable& durable)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Without the lock: when what was written is durable, moves the watermark and tells observer and listener.
  void WhenDurable(uint64_t through, Durable durable);
  // Metrics of steps and of this rank, which are shown while the session is open.
  void CountFinished(const storage::SessionRow& row, const Durable& durable);
  std::shared_ptr<SessionListener> listener() const;

  const SessionContext& context_;
  mutable absl::Mutex mu_;
  storage::SessionRow row_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, OpenStep> steps_ ABSL_GUARDED_BY(mu_);  // unfinished
  absl::flat_hash_map<uint64_t, std::unique_ptr<StructureSummary>> structures_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<uint64_t> stacks_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, PendingPayload> pending_ ABSL_GUARDED_BY(mu_);
  size_t uploads_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t durable_ ABSL_GUARDED_BY(mu_) = 0;
  std::weak_ptr<SessionListener> listener_ ABSL_GUARDED_BY(mu_);
  int users_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_user_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time detached_since_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace msprobe::server
