#include "server/ingest/session/live_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/ingest/session/batch_staging.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

absl::Status Replaced() { return absl::AbortedError("another stream of this session took over"); }

}  // namespace

absl::StatusOr<std::shared_ptr<LiveSession>> LiveSession::Load(const SessionContext& context, storage::SessionRow row,
                                                               bool reopen) {
  auto state = SessionState::Load(*context.store, std::move(row), reopen);
  if (!state.ok()) return state.status();
  std::shared_ptr<LiveSession> session(new LiveSession(context, *std::move(state)));
  {
    absl::MutexLock lock(&session->mu_);
    session->durable_ = session->state_.row.watermark();
    session->detached_since_ = context.store->Now();
  }
  if (!reopen) return session;
  if (absl::Status status = session->CompleteWhatLacksNothing(); !status.ok()) return status;
  return session;
}

absl::Status LiveSession::CheckBatch(const v1::Batch& batch) const {
  const storage::SessionRow& row = state_.row;
  if (batch.session() != row.session()) {
    return absl::InvalidArgumentError(
        Cat("batch.session is ", Hex(batch.session()), ", the stream's session is ", Hex(row.session())));
  }
  if (batch.batch_sequence() <= row.watermark()) return absl::OkStatus();
  if (absl::Status status = context_.store->database().Writable(); !status.ok()) return status;
  if (context_.admit) {
    if (absl::Status status = context_.admit(row.run()); !status.ok()) return status;
  }
  if (batch.batch_sequence() != row.watermark() + 1) {
    return absl::OutOfRangeError(
        Cat("batch_sequence is ", batch.batch_sequence(), ", the next one is ", row.watermark() + 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::PayloadVerdict> LiveSession::Apply(uint64_t user, const v1::Batch& batch) {
  Store& store = *context_.store;
  v1::PayloadVerdict verdict;
  Durable durable;
  {
    absl::MutexLock lock(&mu_);
    if (absl::Status status = CheckUser(user); !status.ok()) return status;
    if (absl::Status status = CheckBatch(batch); !status.ok()) return status;
    if (batch.batch_sequence() <= state_.row.watermark()) {
      context_.metrics->Add(Metric::kIngestDuplicates, 1);
      return verdict;
    }
    absl::ReaderMutexLock deletion(&store.payloads().deletion_mutex());
    BatchStaging staging(&store, &state_);
    absl::Status status = staging.Stage(batch);
    std::optional<absl::ReaderMutexLock> tiling;
    if (staging.moves_steps()) tiling.emplace(&store.steps().tiling_mutex());
    if (status.ok()) status = staging.Finish();
    if (status.ok()) status = store.database().Write(staging.staged().changes);
    if (!status.ok()) {
      return absl::Status(status.code(), Cat("batch ", batch.batch_sequence(), ": ", status.message()));
    }
    const StagedBatch& staged = staging.staged();
    verdict.mutable_wanted()->Assign(staged.wanted.begin(), staged.wanted.end());
    verdict.mutable_stored()->Assign(staged.stored.begin(), staged.stored.end());
    for (const auto& [step, records] : staged.records) durable.steps.push_back(step);
    durable.finished = staged.finished;
    durable.export_requests = staged.export_requests;
    durable.scalars = staged.scalars;
    durable.responses = staged.responses;
    if (staged.rank_change.has_value()) durable.rank_changes.push_back(*staged.rank_change);
    staging.Adopt();
    skipped_from_.reset();
    staging.Count(*context_.metrics);
  }
  context_.metrics->Add(Metric::kIngestBatches, 1);
  context_.metrics->Add(Metric::kIngestBytes, static_cast<double>(batch.ByteSizeLong()), {"batch"});
  WhenDurable(batch.batch_sequence(), std::move(durable));
  return verdict;
}

absl::StatusOr<v1::PayloadVerdict> LiveSession::AddPayload(uint64_t user, const v1::PayloadChunk& chunk,
                                                           std::string_view content) {
  if (chunk.hash().size() != kIdBytes) {
    return absl::InvalidArgumentError(Cat("payload_chunk.hash has ", chunk.hash().size(), " bytes, not ", kIdBytes));
  }
  if (content.size() > context_.max_chunk_bytes) {
    return absl::InvalidArgumentError(
        Cat("payload_chunk.content has ", content.size(), " bytes, at most ", context_.max_chunk_bytes));
  }
  v1::PayloadVerdict verdict;
  absl::StatusOr<PayloadArrivals::Arrived> arrived;
  uint64_t through;
  {
    absl::MutexLock lock(&mu_);
    if (absl::Status status = CheckUser(user); !status.ok()) return status;
    arrived = PayloadArrivals(&context_, &state_).AddChunk(chunk, content, verdict);
    if (!arrived.ok()) return arrived.status();
    through = state_.row.watermark();
  }
  for (const std::string& hash : arrived->hashes) verdict.add_stored(hash);
  TellArrived(through, *std::move(arrived));
  return verdict;
}

absl::StatusOr<size_t> LiveSession::AddWhole(uint64_t user, std::span<const Session::WholePayload> payloads,
                                             v1::PayloadVerdict& verdict) {
  size_t taken = 0;
  absl::StatusOr<PayloadArrivals::Arrived> arrived;
  uint64_t through;
  {
    absl::MutexLock lock(&mu_);
    if (absl::Status status = CheckUser(user); !status.ok()) return status;
    arrived = PayloadArrivals(&context_, &state_).AddWhole(payloads, verdict, taken);
    if (!arrived.ok()) return arrived.status();
    through = state_.row.watermark();
  }
  for (const std::string& hash : arrived->hashes) verdict.add_stored(hash);
  TellArrived(through, *std::move(arrived));
  return taken;
}

absl::Status LiveSession::ResolvePayload(const std::string& hash) {
  Durable durable;
  uint64_t through;
  {
    absl::MutexLock lock(&mu_);
    auto arrived = PayloadArrivals(&context_, &state_).Resolve(hash);
    if (!arrived.ok()) return arrived.status();
    if (arrived->hashes.empty()) return absl::OkStatus();
    durable.finished = std::move(arrived->finished);
    durable.stored = std::move(arrived->hashes);
    through = state_.row.watermark();
  }
  WhenDurable(through, std::move(durable));
  return absl::OkStatus();
}

void LiveSession::TellArrived(uint64_t through, PayloadArrivals::Arrived arrived) {
  // Where no step is finished, the sync that the answer waits for is enough.
  if (!arrived.finished.empty()) {
    Durable durable;
    durable.finished = std::move(arrived.finished);
    WhenDurable(through, std::move(durable));
  }
  if (!context_.payload_arrived) return;
  for (const std::string& hash : arrived.hashes) context_.payload_arrived(hash);
}

void LiveSession::WhenDurable(uint64_t through, Durable durable) {
  const absl::Time since = absl::Now();
  context_.store->database().WhenDurable(
      [self = shared_from_this(), since, through, durable = std::move(durable)](const absl::Status& status) {
        if (!status.ok()) {
          if (auto listener = self->listener(); listener != nullptr) listener->OnSyncFailed(status);
          return;
        }
        self->context_.metrics->Observe(Metric::kAckSeconds, absl::ToDoubleSeconds(absl::Now() - since));
        self->TellDurable(through, durable);
      });
}

void LiveSession::TellDurable(uint64_t through, const Durable& durable) {
  NoteDurable(through);
  const storage::SessionRow now = row();
  CountFinished(now, durable);
  if (SessionObserver* const observer = context_.observer; observer != nullptr) {
    const std::string& session = now.session();
    for (const auto& [from, to] : durable.rank_changes) observer->OnRankKnown(session, from, to);
    if (!durable.scalars.empty()) observer->OnScalars(session, durable.scalars);
    if (!durable.responses.empty()) observer->OnResponses(session, durable.responses);
    for (uint32_t step : durable.steps) observer->OnRecords(now, step);
    for (const auto& [step, state] : durable.finished) observer->OnStepFinished(session, step, state);
    for (uint32_t step : durable.export_requests) observer->OnExportRequested(session, step);
    if (now.state() != storage::SessionRow::OPEN) observer->OnSessionClosed(now);
  }
  if (auto attached = listener(); attached != nullptr) {
    attached->OnDurable(durable_through());
    if (!durable.stored.empty()) attached->OnStored(durable.stored);
  }
}

void LiveSession::CountFinished(const storage::SessionRow& row, const Durable& durable) {
  Metrics& metrics = *context_.metrics;
  const std::string& run = row.hello().run();
  const std::string rank = RankName(row.hello().rank());
  const auto forget = [&](const std::string& former) {
    metrics.Remove(Metric::kLastStep, {run, former});
    metrics.Remove(Metric::kLastStepTime, {run, former});
  };
  for (const auto& [step, state] : durable.finished) {
    metrics.Add(Metric::kStepsFinished, 1, {state == v1::StepSummary::COMPLETE ? "complete" : "incomplete"});
    if (state != v1::StepSummary::COMPLETE) continue;
    metrics.Set(Metric::kLastStep, step, {run, rank});
    metrics.Set(Metric::kLastStepTime, absl::ToDoubleSeconds(context_.store->Now() - absl::UnixEpoch()), {run, rank});
  }
  for (const auto& [from, to] : durable.rank_changes) forget(RankName(from));
  if (row.state() != storage::SessionRow::OPEN) forget(rank);
}

uint64_t LiveSession::received_through() const {
  absl::MutexLock lock(&mu_);
  return state_.row.watermark();
}

uint64_t LiveSession::durable_through() const {
  absl::MutexLock lock(&mu_);
  return durable_;
}

LiveSession::Backlog LiveSession::backlog() const {
  absl::MutexLock lock(&mu_);
  return {.batches = state_.row.watermark() - std::min<uint64_t>(state_.row.watermark(), durable_),
          .payloads = state_.pending.size()};
}

absl::Status LiveSession::AwaitDurable(absl::Duration timeout) {
  return context_.store->database().AwaitDurable(timeout);
}

void LiveSession::NoteDurable(uint64_t through) {
  absl::MutexLock lock(&mu_);
  if (through <= durable_) return;
  context_.metrics->Add(Metric::kDurableBatches, static_cast<double>(through - durable_));
  durable_ = through;
}

absl::StatusOr<LiveSession::User> LiveSession::Attach(std::weak_ptr<SessionListener> listener, uint64_t freed_through) {
  User user;
  std::shared_ptr<SessionListener> replaced;
  {
    absl::MutexLock lock(&mu_);
    SkipTo(freed_through);
    user.number = ++last_user_;
    user.welcome = Welcome();
    replaced = listener_.lock();
    listener_ = std::move(listener);
    ++users_;
    // What the former transport had sent of a payload is sent again from its first byte.
    for (auto& [hash, pending] : state_.pending) pending.upload.reset();
    state_.uploads = 0;
  }
  if (replaced != nullptr) replaced->OnReplaced(Replaced());
  return user;
}

v1::Welcome LiveSession::Welcome() const {
  v1::Welcome welcome;
  welcome.set_protocol(1);
  welcome.set_durable_through(skipped_from_.value_or(state_.row.watermark()));
  welcome.set_durability(context_.store->database().options().durability);
  welcome.set_max_batch_bytes(context_.max_batch_bytes);
  welcome.set_max_chunk_bytes(context_.max_chunk_bytes);
  welcome.set_server_id(context_.store->catalogue().server_id());
  welcome.set_server_version(context_.version);
  for (const std::string& capability : context_.capabilities) welcome.add_capabilities(capability);
  for (const auto& [hash, pending] : state_.pending) welcome.add_missing_payloads(hash);
  return welcome;
}

absl::Status LiveSession::CheckUser(uint64_t user) const { return user == last_user_ ? absl::OkStatus() : Replaced(); }

void LiveSession::Detach() {
  absl::MutexLock lock(&mu_);
  if (--users_ == 0) detached_since_ = context_.store->Now();
}

int LiveSession::users() const {
  absl::MutexLock lock(&mu_);
  return users_;
}

absl::Time LiveSession::detached_since() const {
  absl::MutexLock lock(&mu_);
  return detached_since_;
}

storage::SessionRow LiveSession::row() const {
  absl::MutexLock lock(&mu_);
  return state_.row;
}

bool LiveSession::is_open() const {
  absl::MutexLock lock(&mu_);
  return state_.row.state() == storage::SessionRow::OPEN;
}

bool LiveSession::unfinished() const {
  absl::MutexLock lock(&mu_);
  return state_.unfinished();
}

void LiveSession::Control(const v1::ControlCommand& command) const {
  if (auto attached = listener(); attached != nullptr) attached->OnControl(command);
}

void LiveSession::Tell(const v1::DumpRoom& room) const {
  if (auto attached = listener(); attached != nullptr) attached->OnDumpRoom(room);
}

void LiveSession::Tell(const v1::AlarmRaised& alarm) const {
  if (auto attached = listener(); attached != nullptr) attached->OnAlarm(alarm);
}

std::shared_ptr<SessionListener> LiveSession::listener() const {
  absl::MutexLock lock(&mu_);
  return listener_.lock();
}

void LiveSession::SkipTo(uint64_t freed_through) {
  if (freed_through <= state_.row.watermark()) return;
  LogWarning("session {} has freed {} batches, this server holds {}: what lies between is lost",
             Hex(state_.row.session()), freed_through, state_.row.watermark());
  if (!skipped_from_.has_value()) skipped_from_ = state_.row.watermark();
  state_.row.set_watermark(freed_through);
  durable_ = freed_through;  // nothing of it is held: there is nothing to sync
}

absl::Status LiveSession::CompleteWhatLacksNothing() {
  Durable durable;
  uint64_t through;
  {
    absl::MutexLock lock(&mu_);
    ChangeSet changes;
    for (const auto& [step, open] : state_.steps) {
      if (!open.row.ended() || !open.row.clean() || state_.HasPending(step)) continue;
      storage::StepRow complete = open.row;
      complete.set_state(v1::StepSummary::COMPLETE);
      changes.PutMeta(state_.KeyOf(step).Encode(), complete);
      changes.Put(Family::kMeta, state_.KeyOf(step).Encode(MetaSpace::kUntiled), "");
      durable.finished.emplace_back(step, v1::StepSummary::COMPLETE);
    }
    if (durable.finished.empty()) return absl::OkStatus();
    if (absl::Status status = context_.store->database().Write(changes); !status.ok()) return status;
    for (const auto& [step, state] : durable.finished) state_.steps.erase(step);
    through = state_.row.watermark();
  }
  WhenDurable(through, std::move(durable));
  return absl::OkStatus();
}

absl::Status LiveSession::Lose() {
  Durable durable;
  uint64_t through;
  {
    absl::MutexLock lock(&mu_);
    storage::SessionRow row = state_.row;
    if (row.state() == storage::SessionRow::OPEN) row.set_state(storage::SessionRow::LOST);
    ChangeSet changes;
    changes.PutMeta(SessionKey(row.session()), row);
    for (const auto& [step, open] : state_.steps) {
      storage::StepRow lost = open.row;
      lost.set_state(v1::StepSummary::INCOMPLETE);
      changes.PutMeta(state_.KeyOf(step).Encode(), lost);
      changes.Put(Family::kMeta, state_.KeyOf(step).Encode(MetaSpace::kUntiled), "");
      durable.finished.emplace_back(step, v1::StepSummary::INCOMPLETE);
    }
    if (absl::Status status = context_.store->database().Write(changes); !status.ok()) return status;
    state_.row = row;
    state_.steps.clear();
    through = state_.row.watermark();
  }
  context_.metrics->Add(Metric::kSessionsLost, 1);
  WhenDurable(through, std::move(durable));
  return absl::OkStatus();
}

absl::Status LiveSession::NoteExported(const v1::StepExported& exported, const storage::StepRow* finished) {
  std::shared_ptr<SessionListener> listener;
  {
    absl::MutexLock lock(&mu_);
    listener = listener_.lock();
    if (exported.error().empty() && finished != nullptr && !state_.steps.contains(exported.step())) {
      const std::string key = state_.KeyOf(exported.step()).Encode();
      auto row = context_.store->database().Find<storage::StepRow>(key);
      if (!row.ok()) return row.status();
      // Meanwhile the step may have come back, got its rest and ended again.
      if (row->has_value() && (*row)->state() == finished->state() && (*row)->next_block() == finished->next_block()) {
        (*row)->set_exported(true);
        ChangeSet changes;
        changes.PutMeta(key, **row);
        if (absl::Status status = context_.store->database().Write(changes); !status.ok()) return status;
      }
    }
  }
  if (listener != nullptr) listener->OnStepExported(exported);
  return absl::OkStatus();
}

}  // namespace msprobe::server
