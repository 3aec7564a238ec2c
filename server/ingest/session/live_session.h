#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/ingest/payload/payload_arrivals.h"
#include "server/ingest/session/events.h"
#include "server/ingest/session/session.h"
#include "server/ingest/session/session_context.h"
#include "server/ingest/session/session_state.h"

namespace msprobe::server {

// A session that the server knows, whether or not it has a user: a transport or an import.
//
// 1. What is in memory is what the store holds (SessionState): it changes only after a write has succeeded.
// 2. The observer and the listener hear only of what is durable.
// 3. Only the user attached last may change anything. An earlier user's batch would be answered where nobody listens,
//    and the answer would not be repeated.
// Threads: Apply, AddPayload and AddWhole of one user from one thread at a time; the rest from any.
class LiveSession : public std::enable_shared_from_this<LiveSession> {
 public:
  // As SessionState::Load.
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

  // A user begins. The former one's listener hears that it is replaced. An agent may have freed more batches than this
  // server holds, where the server was replaced or restored: then the session goes on behind them, and `welcome` says
  // what is held, so that the agent tells of the gap. What it says must be made durable before it is passed on.
  struct User {
    uint64_t number = 0;
    v1::Welcome welcome;
  };
  absl::StatusOr<User> Attach(std::weak_ptr<SessionListener> listener, uint64_t freed_through);
  // A user ceases.
  void Detach();
  // Number of users.
  int users() const;
  // Since when the session has had no user, where it has none.
  absl::Time detached_since() const;

  // Batches received and not durable; payloads announced and not whole.
  struct Backlog {
    uint64_t batches = 0, payloads = 0;
  };
  Backlog backlog() const;
  storage::SessionRow row() const;
  bool is_open() const;
  // As SessionState::unfinished.
  bool unfinished() const;

  // Passes a command to the process, if a stream of it is open.
  void Control(const v1::ControlCommand& command) const;
  void Tell(const v1::DumpRoom& room) const;
  void Tell(const v1::AlarmRaised& alarm) const;

  // Unfinished steps become incomplete, the session lost.
  absl::Status Lose();
  // A sync, which this session need not have asked for, covers batches up to here.
  void NoteDurable(uint64_t through);
  // A payload came from another session.
  absl::Status ResolvePayload(const std::string& hash);
  // Files of a step are in place, or could not be written (exported.error()). Tells the listener. Remembers the files
  // in the step's row if that is still as it was before the step was read: `finished`, the row of a finished step, or
  // null.
  absl::Status NoteExported(const v1::StepExported& exported, const storage::StepRow* finished);

 private:
  // News for the observer and the listener, who hear of it once it is durable.
  struct Durable {
    std::vector<uint32_t> steps;  // with new records
    std::vector<std::pair<uint32_t, v1::StepSummary::State>> finished;
    std::vector<uint32_t> export_requests;
    std::vector<ScalarPoint> scalars;
    std::vector<ResponseToken> responses;
    std::vector<std::pair<v1::Rank, v1::Rank>> rank_changes;
    std::vector<std::string> stored;
  };

  LiveSession(const SessionContext& context, SessionState state) : context_(context), state_(std::move(state)) {}
  // Of a session that is open again: the last payload of a step that had ended may have come from another session while
  // this one was lost, and nothing more will come of that step.
  absl::Status CompleteWhatLacksNothing();
  absl::Status CheckUser(uint64_t user) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Whether a batch is the next one, and may be taken now. A duplicate is OK.
  absl::Status CheckBatch(const v1::Batch& batch) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Not in the store before the next batch is: until then each Welcome, also of a later server, names what is held.
  void SkipTo(uint64_t freed_through) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::Welcome Welcome() const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  // The following are called without the lock.
  // When what was written is durable, moves the watermark and tells observer and listener.
  void WhenDurable(uint64_t through, Durable durable);
  void TellDurable(uint64_t through, const Durable& durable);
  // Tells of payloads: their steps when these are durable, the other sessions now.
  void TellArrived(uint64_t through, PayloadArrivals::Arrived arrived);
  // Metrics of steps and of this rank, which are shown while the session is open.
  void CountFinished(const storage::SessionRow& row, const Durable& durable);
  std::shared_ptr<SessionListener> listener() const;

  const SessionContext& context_;
  mutable absl::Mutex mu_;
  SessionState state_ ABSL_GUARDED_BY(mu_);
  uint64_t durable_ ABSL_GUARDED_BY(mu_) = 0;  // batches up to here are durable
  // The last batch that is held, where SkipTo has moved the watermark and no batch has come since.
  std::optional<uint64_t> skipped_from_ ABSL_GUARDED_BY(mu_);
  std::weak_ptr<SessionListener> listener_ ABSL_GUARDED_BY(mu_);
  int users_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_user_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time detached_since_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace msprobe::server
