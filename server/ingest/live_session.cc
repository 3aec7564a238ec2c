#include "server/ingest/live_session.h"

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/ingest/record_identity.h"
#include "server/ingest/staged_batch.h"
#include "server/metrics/log.h"
#include "server/store/stored_blocks.h"

namespace msprobe::server {
namespace {

absl::Status Replaced() { return absl::AbortedError("another stream of this session took over"); }

}  // namespace

absl::StatusOr<std::shared_ptr<LiveSession>> LiveSession::Load(const SessionContext& context, storage::SessionRow row,
                                                               bool reopen) {
  std::shared_ptr<LiveSession> session(new LiveSession(context, std::move(row)));
  absl::MutexLock lock(&session->mu_);
  session->durable_ = session->row_.watermark();
  session->detached_since_ = context.store->Now();
  absl::Status status = session->LoadSteps(reopen);
  if (status.ok()) status = session->LoadPending();
  if (!status.ok()) return status;
  if (reopen && (session->row_.state() == storage::SessionRow::LOST || !session->steps_.empty())) {
    if (session->row_.state() == storage::SessionRow::LOST) session->row_.set_state(storage::SessionRow::OPEN);
    ChangeSet changes;
    changes.PutMeta(SessionKey(session->row_.session()), session->row_);
    for (const auto& [step, open] : session->steps_) changes.PutMeta(session->KeyOf(step).Encode(), open.row);
    if (status = context.store->database().Write(changes); !status.ok()) return status;
  }
  return session;
}

absl::StatusOr<std::vector<Steps::Step>> LiveSession::StepsToLoad() const {
  if (!row_.knows_open_steps()) return context_.store->steps().Of(row_.run());
  std::vector<Steps::Step> steps;
  for (uint32_t step : row_.open_steps()) {
    const StepKey key = KeyOf(step);
    auto row = context_.store->database().Find<storage::StepRow>(key.Encode());
    if (!row.ok()) return row.status();
    if (row->has_value()) steps.emplace_back(key, **row);
  }
  return steps;
}

absl::Status LiveSession::LoadSteps(bool reopen) {
  auto steps = StepsToLoad();
  if (!steps.ok()) return steps.status();
  for (auto& [key, row] : *steps) {
    if (key.epoch != row_.epoch()) continue;
    const bool lost = row.state() == v1::StepSummary::INCOMPLETE;
    // A step that had ended and lacked payloads only may still get them.
    const bool back = reopen && lost && (row_.state() == storage::SessionRow::LOST || (row.ended() && row.clean()));
    if (row.state() != v1::StepSummary::OPEN && !back) continue;
    if (lost) {
      row.set_state(v1::StepSummary::OPEN);
      row.set_exported(false);
    }
    OpenStep& open = steps_[key.step];
    open.row = std::move(row);
    if (absl::Status status = CountStoredRecords(key.step, open); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status LiveSession::CountStoredRecords(uint32_t step, OpenStep& open) {
  auto blocks = context_.store->steps().ReadBlocks(KeyOf(step));
  if (!blocks.ok()) return blocks.status();
  for (const auto& block : *blocks) {
    for (int i = 0; i < block->structure_size(); ++i) {
      if (block->fragment_flags(i) & v1::FRAGMENT_CONSTRUCT_ONLY) continue;
      const StructureSummary* structure = Structure(block->structures(static_cast<int>(block->structure(i))));
      if (structure != nullptr) open.records.insert(RecordIdentity(*structure, block->count(i)));
    }
  }
  return absl::OkStatus();
}

absl::Status LiveSession::LoadPending() {
  const std::string prefix = MetaPrefix(MetaSpace::kPending, row_.session());
  return context_.store->database().ForEach(
      Family::kMeta, prefix, [&](std::string_view key, std::string_view value) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        auto row = DecodeAs<storage::PendingRow>(value);
        if (row.ok()) pending_[std::string(key.substr(prefix.size()))].row = *std::move(row);
        return row.status();
      });
}

StepKey LiveSession::KeyOf(uint32_t step) const {
  return StepKey{row_.run(), RankCode(row_.hello().rank()), step, row_.epoch()};
}

const StructureSummary* LiveSession::Structure(uint64_t id) {
  if (auto found = structures_.find(id); found != structures_.end()) return found->second.get();
  auto definition = context_.store->definitions().Find(row_.run(), id);
  if (!definition.ok() || definition->kind != DefinitionKind::kStructure) return nullptr;
  v1::Structure structure;
  if (!structure.ParseFromString(definition->bytes)) return nullptr;
  auto summary = Summarize(structure);
  if (!summary.ok()) return nullptr;
  return structures_.emplace(id, std::make_unique<StructureSummary>(*std::move(summary))).first->second.get();
}

bool LiveSession::HasStack(uint64_t id) {
  if (stacks_.contains(id)) return true;
  auto definition = context_.store->definitions().Find(row_.run(), id);
  if (!definition.ok() || definition->kind != DefinitionKind::kStack) return false;
  stacks_.insert(id);
  return true;
}

absl::StatusOr<v1::PayloadVerdict> LiveSession::Apply(uint64_t user, const v1::Batch& batch) {
  v1::PayloadVerdict verdict;
  Durable durable;
  {
    absl::MutexLock lock(&mu_);
    if (absl::Status status = CheckUser(user); !status.ok()) return status;
    if (batch.session() != row_.session()) {
      return absl::InvalidArgumentError(
          Cat("batch.session is ", Hex(batch.session()), ", the stream's session is ", Hex(row_.session())));
    }
    if (batch.batch_sequence() <= row_.watermark()) {
      context_.metrics->Add(Metric::kIngestDuplicates, 1);
      return verdict;
    }
    if (absl::Status status = context_.store->database().Writable(); !status.ok()) return status;
    if (context_.admit) {
      if (absl::Status status = context_.admit(row_.run()); !status.ok()) return status;
    }
    if (batch.batch_sequence() != row_.watermark() + 1) {
      return absl::OutOfRangeError(
          Cat("batch_sequence is ", batch.batch_sequence(), ", the next one is ", row_.watermark() + 1));
    }
    absl::ReaderMutexLock deletion(&context_.store->payloads().deletion_mutex());
    StagedBatch staged;
    absl::Status status = Stage(batch, staged);
    std::optional<absl::ReaderMutexLock> tiling;
    if (!staged.discarded.empty() || RankCode(row_.hello().rank()) != RankCode(staged.session.hello().rank())) {
      tiling.emplace(&context_.store->steps().tiling_mutex());
    }
    if (status.ok()) status = FinishStaging(staged);
    if (status.ok()) status = context_.store->database().Write(staged.changes);
    if (!status.ok()) {
      return absl::Status(status.code(), Cat("batch ", batch.batch_sequence(), ": ", status.message()));
    }
    for (std::string& hash : staged.wanted) verdict.add_wanted(hash);
    for (std::string& hash : staged.stored) verdict.add_stored(hash);
    durable.finished = staged.finished;
    durable.export_requests = staged.export_requests;
    if (staged.rank_change.has_value()) durable.rank_changes.push_back(*staged.rank_change);
    Adopt(staged);
  }
  context_.metrics->Add(Metric::kIngestBatches, 1);
  context_.metrics->Add(Metric::kIngestBytes, static_cast<double>(batch.ByteSizeLong()), {"batch"});
  WhenDurable(batch.batch_sequence(), std::move(durable));
  return verdict;
}

void LiveSession::WhenDurable(uint64_t through, Durable durable) {
  const absl::Time since = absl::Now();
  context_.store->database().WhenDurable(
      [self = shared_from_this(), since, through, durable = std::move(durable)](absl::Status status) {
        if (!status.ok()) {
          if (auto listener = self->listener(); listener != nullptr) listener->OnSyncFailed(status);
          return;
        }
        self->NoteDurable(through);
        self->context_.metrics->Observe(Metric::kAckSeconds, absl::ToDoubleSeconds(absl::Now() - since));
        const storage::SessionRow row = self->row();
        const std::string& session = row.session();
        SessionObserver* observer = self->context_.observer;
        self->CountFinished(row, durable);
        if (observer != nullptr) {
          for (const auto& [from, to] : durable.rank_changes) observer->OnRankKnown(session, from, to);
          for (const auto& [step, state] : durable.finished) observer->OnStepFinished(session, step, state);
          for (uint32_t step : durable.export_requests) observer->OnExportRequested(session, step);
        }
        if (auto listener = self->listener(); listener != nullptr) {
          listener->OnDurable(self->durable_through());
          if (!durable.stored.empty()) listener->OnStored(durable.stored);
        }
      });
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
  return row_.watermark();
}

uint64_t LiveSession::durable_through() const {
  absl::MutexLock lock(&mu_);
  return durable_;
}

LiveSession::Backlog LiveSession::backlog() const {
  absl::MutexLock lock(&mu_);
  return {.batches = row_.watermark() - std::min<uint64_t>(row_.watermark(), durable_), .payloads = pending_.size()};
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
    if (absl::Status status = SkipTo(freed_through); !status.ok()) return status;
    user.number = ++last_user_;
    user.welcome = Welcome();
    replaced = listener_.lock();
    listener_ = std::move(listener);
    ++users_;
    // What the former transport had sent of a payload is sent again from its first byte.
    for (auto& [hash, pending] : pending_) pending.upload.reset();
    uploads_ = 0;
  }
  if (replaced != nullptr) replaced->OnReplaced(Replaced());
  return user;
}

v1::Welcome LiveSession::Welcome() const {
  v1::Welcome welcome;
  welcome.set_protocol(1);
  welcome.set_durable_through(row_.watermark());
  welcome.set_durability(context_.store->database().options().durability);
  welcome.set_max_batch_bytes(context_.max_batch_bytes);
  welcome.set_max_chunk_bytes(context_.max_chunk_bytes);
  welcome.set_server_id(context_.store->catalogue().server_id());
  welcome.set_server_version(context_.version);
  for (const std::string& capability : context_.capabilities) welcome.add_capabilities(capability);
  for (const auto& [hash, pending] : pending_) welcome.add_missing_payloads(hash);
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
  return row_;
}

bool LiveSession::unfinished() const {
  absl::MutexLock lock(&mu_);
  return row_.state() == storage::SessionRow::OPEN || !steps_.empty();
}

void LiveSession::Control(const v1::ControlCommand& command) const {
  if (auto attached = listener(); attached != nullptr) attached->OnControl(command);
}

void LiveSession::Tell(const v1::DumpRoom& room) const {
  if (auto attached = listener(); attached != nullptr) attached->OnDumpRoom(room);
}

std::shared_ptr<SessionListener> LiveSession::listener() const {
  absl::MutexLock lock(&mu_);
  return listener_.lock();
}

absl::Status LiveSession::SkipTo(uint64_t freed_through) {
  if (freed_through <= row_.watermark()) return absl::OkStatus();
  LogWarning("session {} has freed {} batches, this server holds {}: what lies between is lost", Hex(row_.session()),
             freed_through, row_.watermark());
  storage::SessionRow row = row_;
  row.set_watermark(freed_through);
  ChangeSet changes;
  changes.PutMeta(SessionKey(row.session()), row);
  if (absl::Status status = context_.store->database().Write(changes); !status.ok()) return status;
  row_ = row;
  durable_ = freed_through;  // nothing of it is held: there is nothing to sync
  return absl::OkStatus();
}

absl::Status LiveSession::Lose() {
  Durable durable;
  uint64_t through;
  {
    absl::MutexLock lock(&mu_);
    storage::SessionRow row = row_;
    if (row.state() == storage::SessionRow::OPEN) row.set_state(storage::SessionRow::LOST);
    ChangeSet changes;
    changes.PutMeta(SessionKey(row.session()), row);
    for (const auto& [step, open] : steps_) {
      storage::StepRow lost = open.row;
      lost.set_state(v1::StepSummary::INCOMPLETE);
      changes.PutMeta(KeyOf(step).Encode(), lost);
      changes.Put(Family::kMeta, KeyOf(step).Encode(MetaSpace::kUntiled), "");
      durable.finished.emplace_back(step, v1::StepSummary::INCOMPLETE);
    }
    if (absl::Status status = context_.store->database().Write(changes); !status.ok()) return status;
    row_ = row;
    steps_.clear();
    through = row_.watermark();
  }
  context_.metrics->Add(Metric::kSessionsLost, 1);
  WhenDurable(through, std::move(durable));
  return absl::OkStatus();
}

absl::Status LiveSession::NoteExported(const v1::StepExported& exported, bool finished) {
  std::shared_ptr<SessionListener> listener;
  {
    absl::MutexLock lock(&mu_);
    listener = listener_.lock();
    if (exported.error().empty() && finished && !steps_.contains(exported.step())) {
      const std::string key = KeyOf(exported.step()).Encode();
      auto row = context_.store->database().Find<storage::StepRow>(key);
      if (!row.ok()) return row.status();
      if (row->has_value()) {
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
