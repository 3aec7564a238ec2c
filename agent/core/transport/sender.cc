#include "agent/core/transport/sender.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "agent/core/background_thread.h"
#include "agent/core/str_cat.h"
#include "agent/core/utf8.h"

namespace msprobe::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How long a record may lie in the queue for others to join its batch, unless they fill a chunk; also what a kill -9
// may lose of a running step (the end of one is sent at once). A batch costs both sides about a millisecond of CPU
// however small it is: at 100 ms they were half of what capture cost beside the caller at level L0.
constexpr milliseconds kLinger(500);
// Of records with payloads, which hold memory until they are announced, wanted and stored.
constexpr milliseconds kLingerWithPayloads(100);
constexpr seconds kWelcomeTimeout(10);
constexpr size_t kChunkBytes = size_t{1} << 20;

std::string Mebibytes(uint64_t bytes) { return Cat(bytes >> 20, " MiB"); }

// False: nothing was written.
bool AppendLine(const std::string& path, const std::string& line) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::ofstream file(path, std::ios::app);
  file << line << '\n';
  return file.flush().good();
}

bool Has(const v1::Welcome& welcome, std::string_view capability) {
  return std::find(welcome.capabilities().begin(), welcome.capabilities().end(), capability) !=
         welcome.capabilities().end();
}

}  // namespace

Sender::Sender(const SenderParts& parts, v1::Hello hello, Connector connector, Spool spool, bool may_spill,
               absl::Duration reading_bound)
    : parts_(parts),
      may_spill_(may_spill),
      reading_bound_(absl::ToChronoNanoseconds(std::clamp(reading_bound, absl::ZeroDuration(), absl::Hours(24)))),
      hello_(std::move(hello)),
      connector_(std::move(connector)),
      spool_(std::move(spool)),
      packer_(hello_.session(), parts.dictionary),
      outbox_(parts.budget.get(), &spool_, parts.memory) {}

Sender::~Sender() { Stop(absl::ZeroDuration()); }

absl::Status Sender::Restore(Outbox::Left left) {
  packed_entries_ = left.last_entry;
  if (absl::Status status = outbox_.Restore(std::move(left)); !status.ok()) return status;
  packer_.ContinueAt(outbox_.last_sequence() + 1);
  packer_.Verify();
  next_to_send_ = outbox_.freed_through() + 1;
  return absl::OkStatus();
}

void Sender::Start() {
  thread_ = StartBackgroundThread("msprobe-sender", [this] { Run(); });
}

void Sender::Stop(absl::Duration timeout) {
  if (!thread_.joinable()) return;
  close_timeout_ = absl::ToChronoNanoseconds(std::clamp(timeout, absl::Milliseconds(100), absl::Seconds(2)));
  stop_ = true;
  parts_.bell->Ring();
  thread_.join();
}

void Sender::StayConnected() {
  stays_connected_ = true;
  parts_.bell->Ring();
}

void Sender::ExpectReadingsUntil(absl::Duration from_now) {
  readings_end_ =
      Clock::now() + absl::ToChronoNanoseconds(std::clamp(from_now, absl::ZeroDuration(), absl::Hours(24 * 365)));
  parts_.bell->Ring();
}

absl::Status Sender::Wait(uint64_t entry, absl::Duration timeout) {
  const Clock::time_point deadline =
      Clock::now() + absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24 * 365)));
  MutexLock lock(&mu_);
  const auto waiter = waiters_.emplace(waiters_.end(), entry);
  parts_.bell->Ring();
  while (!waiter->done && answered_.WaitUntil(&mu_, deadline)) {
  }
  const absl::Status status =
      waiter->done ? absl::OkStatus()
                   : absl::DeadlineExceededError(waiter->missing.empty() ? "the sender is busy" : waiter->missing);
  waiters_.erase(waiter);
  return status;
}

void Sender::Run() {
  while (!stop_) {
    const Clock::time_point now = Clock::now();
    Clock::time_point wake = Drain(now);
    TendStream(now);
    Spill();
    if (stream_ == nullptr && (stays_connected_ || !outbox_.empty() || outbox_.payloads() != 0)) {
      stream_ = connector_.TryStart(now);
      if (stream_ != nullptr) {
        welcome_deadline_ = now + kWelcomeTimeout;
      } else {
        wake = std::min(wake, std::max(connector_.next_attempt(), now + milliseconds(1)));
      }
    }
    if (stream_ != nullptr && !welcomed_) wake = std::min(wake, welcome_deadline_);
    if (stream_ != nullptr && !hello_sent_) {
      hello_.set_freed_through(outbox_.freed_through());
      const bool shares = parts_.shares_memory && hello_.settings().task() == kTaskWithPayloads;
      hello_.set_shared_file(shares ? parts_.memory->name() : "");
      hello_.clear_awaited_exports();
      for (const auto& [step, pending] : pending_exports_) {
        if (pending.complete) hello_.add_awaited_exports(step);
      }
      v1::AgentMessage message;
      *message.mutable_hello() = hello_;
      hello_sent_ = stream_->Write(OwnedMessage(message.SerializeAsString()));
    }
    SendReport();
    Pump();
    if (throttled_until_ > now) wake = std::min(wake, throttled_until_);
    Publish();
    AnswerWaiters();
    parts_.bell->WaitUntil(wake);
  }
  Drain(Clock::now());
  CloseStream();
}

Sender::Clock::time_point Sender::Drain(Clock::time_point now) {
  Clock::time_point wake = now + std::chrono::hours(1);
  const FragmentQueue::Fill fill = parts_.queue->fill();
  const milliseconds linger = hello_.settings().task() == kTaskWithPayloads ? kLingerWithPayloads : kLinger;
  if (!fill.empty && !fill.urgent && now < fill.oldest + linger) {
    wake = fill.oldest + linger;
  } else if (!fill.empty) {
    for (Chunk& chunk : parts_.queue->Take()) taken_.push_back(std::move(chunk));
  }
  wake = std::min(wake, PackTaken(now));
  if (!packer_.empty()) CutBatch();
  GiveBackChunks();
  return wake;
}

Sender::Clock::time_point Sender::PackTaken(Clock::time_point now) {
  while (!taken_.empty()) {
    if (!PackFront(now)) return std::min(settling_since_ + reading_bound_, readings_end_.load());
    packed_.push_back(std::move(taken_.front()));
    taken_.pop_front();
  }
  return Clock::time_point::max();
}

void Sender::GiveBackChunks() {
  for (Chunk& chunk : packed_) {
    parts_.budget->Release(chunk.charged);
    parts_.queue->Recycle(std::move(chunk));
  }
  packed_.clear();
}

bool Sender::PackFront(Clock::time_point now) {
  if (!reader_.has_value()) {
    reader_.emplace(&taken_.front());
    // Only of a process that is gone: a chunk that had no room in the session's memory.
    if (taken_.front().before > packed_entries_) {
      v1::Marker marker;
      marker.mutable_gap()->set_step(open_step_.value_or(0));
      marker.mutable_gap()->set_fragments(taken_.front().before - packed_entries_);
      marker.mutable_gap()->set_reason(v1::Marker::Gap::FAULT);
      packer_.AddMarker(marker);
      packed_entries_ = taken_.front().before;
    }
  }
  while (settling_ || reader_->Next()) {
    if (!reader_->is_marker() && !Settle(now)) return false;
    ++packed_entries_;
    if (reader_->is_marker()) {
      PackMarker(reader_->marker());
    } else {
      open_step_ = reader_->fragment().step;
      if (!packer_.Add(reader_->fragment(), reader_->leaves())) {
        ++parts_.counters->faults;
        ++parts_.counters->fragments_dropped;
      }
    }
    if (packer_.full()) CutBatch();
  }
  reader_.reset();
  return true;
}

bool Sender::Settle(Clock::time_point now) {
  bool lost = false;
  for (Leaf& leaf : reader_->leaves()) {
    if (leaf.pending == nullptr) continue;
    PendingReading::State state = leaf.pending->state();
    if (state == PendingReading::State::kUnderWay) {
      const bool began = !std::exchange(settling_, true);
      if (began) settling_since_ = now;
      if (!readings_stopped_ && now < settling_since_ + reading_bound_ && now < readings_end_.load()) {
        if (began) leaf.pending->RingWhenDone(parts_.bell);
        return false;
      }
      if (!std::exchange(readings_stopped_, true)) {
        parts_.log->Warning("msprobe: a device does not give numbers back in time; records go without them.");
      }
      state = PendingReading::State::kLost;
    } else {
      readings_stopped_ = false;
      if (std::exchange(settling_, false)) settling_since_ = now;
    }
    if (state == PendingReading::State::kCame) {
      leaf.pending->Complete(leaf);
    } else {
      lost = true;
      if (leaf.payload != nullptr) ++parts_.counters->payloads_dropped;
      leaf.payload.reset();
    }
    leaf.pending.reset();
  }
  settling_ = false;
  if (lost) {
    ++parts_.counters->faults;
    reader_->AddFlags(kFault);
  }
  return true;
}

void Sender::PackMarker(std::string_view serialized) {
  v1::Marker marker;
  marker.ParseFromArray(serialized.data(), static_cast<int>(serialized.size()));
  packer_.AddMarker(marker);
  switch (marker.kind_case()) {
    case v1::Marker::kStepEnd:
      // A step of which nothing was captured leaves no trace to wait for.
      if (open_step_ == marker.step_end().step()) {
        pending_exports_[*open_step_] = {.entry = packed_entries_, .complete = true};
      }
      open_step_.reset();
      break;
    case v1::Marker::kStepDiscarded:
      open_step_.reset();
      break;
    case v1::Marker::kExportOpenStep:
      if (open_step_ == marker.export_open_step().step()) {
        pending_exports_.try_emplace(*open_step_, PendingExport{.entry = packed_entries_});
      }
      break;
    case v1::Marker::kRankKnown:
      *hello_.mutable_rank() = marker.rank_known().rank();
      break;
    case v1::Marker::kSettingsChanged:
      *hello_.mutable_settings() = marker.settings_changed().settings();
      break;
    case v1::Marker::kSessionEnd:
      if (marker.session_end().clean() && open_step_.has_value()) {
        pending_exports_[*open_step_] = {.entry = packed_entries_, .complete = true};
      }
      break;
    default:
      break;
  }
}

void Sender::CutBatch() {
  PackedBatch batch = packer_.Cut(packed_entries_);
  outbox_.Append(std::move(batch));
  GiveBackChunks();
  Spill();
  Pump();
}

void Sender::Spill() {
  // Half: what comes while the disk is written to still has room.
  if (!may_spill_ || parts_.budget->used() <= parts_.budget->ceiling() / 2) return;
  while (parts_.budget->used() > parts_.budget->ceiling() / 8 * 3 && !outbox_.spool_full() && outbox_.SpillOldest()) {
  }
  parts_.counters->spool_full = outbox_.spool_full();
}

void Sender::TendStream(Clock::time_point now) {
  std::erase_if(retired_, [](const auto& stream) { return stream->ended().has_value(); });
  if (stream_ == nullptr) return;
  for (const v1::ServerMessage& message : stream_->TakeMessages()) HandleMessage(message);
  if (const std::optional<grpc::Status> status = stream_->ended()) {
    // Messages may have come between the two looks.
    for (const v1::ServerMessage& message : stream_->TakeMessages()) HandleMessage(message);
    StreamEnded(now, *status);
  } else if (!welcomed_ && now >= welcome_deadline_) {
    stream_->Cancel();
    StreamEnded(now, grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no answer within 10 s"));
  }
}

void Sender::HandleMessage(const v1::ServerMessage& message) {
  switch (message.kind_case()) {
    case v1::ServerMessage::kWelcome:
      HandleWelcome(message.welcome());
      break;
    case v1::ServerMessage::kAck:
      received_through_ = std::max<uint64_t>(received_through_, message.ack().received_through());
      outbox_.Acknowledge(message.ack().durable_through());
      // What a former stream carried may have come after this one's welcome.
      next_to_send_ = std::max(next_to_send_, outbox_.freed_through() + 1);
      if (outbox_.freed_through() + 1 >= next_to_send_) one_at_a_time_ = false;
      break;
    case v1::ServerMessage::kPayloadVerdict:
      HandleVerdict(message.payload_verdict());
      break;
    case v1::ServerMessage::kStepExported:
      HandleExported(message.step_exported());
      break;
    case v1::ServerMessage::kThrottle:
      bytes_per_second_ = message.throttle().bytes_per_second();
      if (bytes_per_second_ == 0) throttled_until_ = Clock::time_point::min();
      break;
    case v1::ServerMessage::kControl:
      HandleControl(message.control());
      break;
    case v1::ServerMessage::kDumpRoom:
      HandleDumpRoom(message.dump_room());
      break;
    case v1::ServerMessage::kRedirect:
      redirect_ = message.redirect().address();
      break;
    default:
      break;
  }
}

void Sender::HandleControl(const v1::ControlCommand& command) {
  if (parts_.control == nullptr) return;
  controlled_ = true;
  reported_ = 0;
  parts_.control->Put({.id = command.id(),
                       .action = static_cast<ControlCommand::Action>(command.action()),
                       .settings_json = command.settings_json(),
                       .steps = command.steps(),
                       .request = command.request(),
                       .asked_by = command.asked_by()});
}

void Sender::HandleDumpRoom(const v1::DumpRoom& room) {
  const bool was_full = parts_.counters->dump_full.exchange(room.full());
  const std::string held = Cat(hello_.settings().dump_path(), " has ", Mebibytes(room.bytes()), " in ", room.steps(),
                               " steps, and may have ", Mebibytes(room.limit_bytes()),
                               room.by_quota() ? " (dump_quota_mb)" : " (half of what its disk had free)");
  if (room.full()) {
    parts_.log->Warning(
        Cat("msprobe: capturing pauses: ", held, "; ", Mebibytes(room.free_bytes()),
            " are free on the disk. It goes on when there is room; raise dump_quota_mb, or move steps away."));
  } else if (was_full) {
    parts_.log->Info(Cat("msprobe: capturing goes on: ", held, "."));
  } else {
    parts_.log->Warning(Cat("msprobe: ", held, "; capturing pauses then. max_steps, step and list bound it."));
  }
}

void Sender::SendReport() {
  if (!controlled_ || stream_ == nullptr || !stream_->writable()) return;
  const ControlMailbox::Report report = parts_.control->report();
  if (report.version == reported_) return;
  v1::AgentMessage message;
  v1::ControlReport* const out = message.mutable_control_report();
  out->set_received(report.received);
  out->set_answered(report.answer.command);
  out->set_said(ToUtf8(report.answer.said));
  out->set_refused(report.answer.refused);
  out->set_enabled(report.state.enabled);
  out->set_capturing(report.state.capturing);
  out->set_task(report.state.task);
  out->set_level(report.state.level);
  out->set_summary_mode(report.state.summary_mode);
  out->set_list(ToUtf8(report.state.list));
  out->set_request(ToUtf8(report.state.request));
  out->set_step(report.state.step);
  out->set_steps_left(report.state.steps_left);
  out->set_queue_bytes(parts_.budget->used() + spool_.held_bytes());
  out->set_records_emitted(parts_.counters->fragments_emitted);
  out->set_records_dropped(parts_.counters->fragments_dropped);
  if (stream_->Write(OwnedMessage(message.SerializeAsString()))) {
    reported_ = report.version;
  }
}

void Sender::HandleWelcome(const v1::Welcome& welcome) {
  welcomed_ = true;
  connector_.Succeeded(welcome.server_version());
  parts_.memory->NoteServer(connector_.target());
  max_chunk_bytes_ =
      welcome.max_chunk_bytes() == 0 ? kChunkBytes : std::min<size_t>(kChunkBytes, welcome.max_chunk_bytes());
  server_exports_ = Has(welcome, "export");
  server_takes_chunks_ = Has(welcome, "payload_chunks");
  server_takes_digests_ = Has(welcome, "digests");
  server_reads_memory_ = server_takes_chunks_ && !hello_.shared_file().empty() && Has(welcome, "shared_memory");
  outbox_.Acknowledge(welcome.durable_through());
  if (welcome.durable_through() < outbox_.freed_through()) TellServerItLostBatches();
  next_to_send_ = outbox_.freed_through() + 1;
  v1::PayloadVerdict missing;
  *missing.mutable_wanted() = welcome.missing_payloads();
  outbox_.StoredUnlessMissing(welcome.durable_through(), {missing.wanted().begin(), missing.wanted().end()});
  HandleVerdict(missing);
}

void Sender::HandleExported(const v1::StepExported& exported) {
  const auto it = pending_exports_.find(exported.step());
  if (it == pending_exports_.end()) return;  // told twice
  if (!exported.error().empty()) {
    parts_.log->Error(Cat("msprobe: step ", exported.step(), " could not be exported: ", exported.error()));
  } else {
    parts_.log->Info(Cat("dump.json is at ", exported.path(), ". "));
  }
  if (!exported.incomplete() || !it->second.complete) pending_exports_.erase(it);
}

void Sender::TellServerItLostBatches() {
  parts_.log->Warning(Cat("msprobe: the server no longer has records that it had acknowledged (up to batch ",
                          outbox_.freed_through(), "); the run has a gap."));
  v1::Marker marker;
  marker.mutable_gap()->set_reason(v1::Marker::Gap::SERVER_LOST);
  if (outbox_.empty()) {
    marker.mutable_gap()->set_step(open_step_.value_or(0));
    packer_.RestateDefinitions();
    packer_.AddMarker(marker);
    CutBatch();
    return;
  }
  const uint64_t sequence = outbox_.freed_through() + 1;
  marker.mutable_gap()->set_step(outbox_.Summary(sequence).first_step);
  const absl::StatusOr<Outbox::Bytes> bytes = outbox_.BatchBytes(sequence);
  v1::AgentMessage message;
  if (!bytes.ok() || !message.ParseFromArray(bytes->view.data(), static_cast<int>(bytes->view.size()))) {
    return ReplaceByGap(sequence);
  }
  v1::Batch whole;
  packer_.CopyDefinitions(&whole);
  *whole.add_items()->mutable_marker() = marker;
  message.mutable_batch()->clear_definitions();
  whole.MergeFrom(message.batch());
  *message.mutable_batch() = std::move(whole);
  outbox_.ReplaceBatch(sequence, message.SerializeAsString());
}

void Sender::ReplaceByGap(uint64_t sequence) {
  const Outbox::BatchSummary summary = outbox_.Summary(sequence);
  parts_.counters->fragments_dropped += summary.fragments;
  ++parts_.counters->faults;
  parts_.log->Warning(Cat("msprobe: batch ", sequence, " with ", summary.fragments, " records is lost."));
  v1::AgentMessage message;
  v1::Batch* const batch = message.mutable_batch();
  batch->set_session(hello_.session());
  batch->set_batch_sequence(sequence);
  packer_.CopyDefinitions(batch);
  v1::Marker::Gap* const gap = batch->add_items()->mutable_marker()->mutable_gap();
  gap->set_step(summary.first_step);
  gap->set_fragments(summary.fragments);
  gap->set_reason(v1::Marker::Gap::FAULT);
  outbox_.ReplaceBatch(sequence, message.SerializeAsString());
}

void Sender::StreamEnded(Clock::time_point now, const grpc::Status& status) {
  if (welcomed_ && status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) {
    // Which of the batches under way is malformed is not said: they go one by one until it shows.
    const uint64_t head = outbox_.freed_through() + 1;
    if (one_at_a_time_ && next_to_send_ == head + 1 && !outbox_.empty()) ReplaceByGap(head);
    one_at_a_time_ = true;
  }
  if (!redirect_.empty()) {
    connector_.Redirected(now, redirect_);
    return ForgetStream();
  }
  connector_.Failed(now, status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it ended the stream") : status);
  ForgetStream();
}

void Sender::ForgetStream() {
  if (!stream_->ended().has_value()) retired_.push_back(std::move(stream_));
  stream_.reset();
  redirect_.clear();
  hello_sent_ = false;
  welcomed_ = false;
  controlled_ = false;
  wanted_.clear();
  queued_.clear();
  upload_.reset();
  outbox_.EndLending();
  bytes_per_second_ = 0;
  throttled_until_ = Clock::time_point::min();
}

void Sender::Pump() {
  while (stream_ != nullptr && welcomed_ && stream_->writable() && Clock::now() >= throttled_until_) {
    chunk_next_ = !chunk_next_;
    const bool sent = chunk_next_ ? SendChunk() || SendBatch() : SendBatch() || SendChunk();
    if (!sent) return;
  }
}

bool Sender::SendBatch() {
  if (next_to_send_ > outbox_.last_sequence()) return false;
  if (one_at_a_time_ && next_to_send_ > outbox_.freed_through() + 1) return false;
  absl::StatusOr<Outbox::Bytes> bytes = outbox_.BatchBytes(next_to_send_);
  if (!bytes.ok()) {
    ReplaceByGap(next_to_send_);
    bytes = outbox_.BatchBytes(next_to_send_);
  }
  if (!server_takes_digests_) {
    const auto plain = std::make_shared<const std::string>(WithoutDigests(bytes->view));
    *bytes = {.owner = plain, .view = *plain};
  }
  const size_t size = bytes->view.size();
  if (!stream_->Write(BorrowedMessage(bytes->view, std::move(bytes->owner)))) return false;
  ++next_to_send_;
  ++parts_.counters->batches_sent;
  Sent(size);
  return true;
}

void Sender::Sent(size_t bytes) {
  parts_.counters->bytes_sent += bytes;
  if (bytes_per_second_ == 0) return;
  const std::chrono::duration<double> pause(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
  throttled_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(pause);
}

std::string Sender::Missing(uint64_t entry) const {
  std::vector<std::string> missing;
  const uint64_t sequence = outbox_.SequenceOfEntry(entry);
  if (packed_entries_ < entry) {
    missing.push_back(settling_ ? "numbers are on their way from the device" : "records are still being packed");
  }
  if (sequence > outbox_.freed_through()) {
    missing.push_back(Cat(sequence - outbox_.freed_through(), " batches are not durable"));
  }
  if (const uint64_t payloads = outbox_.PayloadsThrough(sequence); payloads > 0) {
    missing.push_back(Cat(payloads, " tensors are not stored"));
  }
  if (server_exports_) {
    std::vector<uint32_t> steps;
    for (const auto& [step, pending] : pending_exports_) {
      if (pending.entry <= entry) steps.push_back(step);
    }
    if (!steps.empty()) missing.push_back(Cat("not exported: step ", absl::StrJoin(steps, ", ")));
  }
  if (!missing.empty() && !welcomed_) {
    const std::string& trouble = connector_.trouble();
    missing.push_back(Cat("the server is not connected", trouble.empty() ? "" : Cat(" (", trouble, ")")));
  }
  return absl::StrJoin(missing, "; ");
}

void Sender::AnswerWaiters() {
  MutexLock lock(&mu_);
  bool any = false;
  for (Waiter& waiter : waiters_) {
    if (waiter.done) continue;
    waiter.missing = Missing(waiter.entry);
    waiter.done = waiter.missing.empty();
    any = any || waiter.done;
  }
  if (any) answered_.SignalAll();
}

void Sender::Publish() {
  if (parts_.memory->lacked_room() && !std::exchange(lack_said_, true)) {
    parts_.log->Warning(
        Cat("msprobe: ", parts_.memory->path(),
            " has no room left that it may take; what had none there dies with this process if it is killed."));
  }
  parts_.counters->received_through = std::max(received_through_, outbox_.freed_through());
  parts_.counters->durable_through = outbox_.freed_through();
  parts_.counters->bytes_spooled = spool_.held_bytes();
  parts_.counters->connected = welcomed_;
  parts_.counters->spool_full = outbox_.spool_full();
}

std::string Sender::NoteLoss(const Outbox::Counts& lost) const {
  const std::string what = Cat(lost.batches, " batches and ", lost.payloads, " tensors are lost");
  if (hello_.settings().dump_path().empty()) return what;
  const std::string path = Cat(hello_.settings().dump_path(), "/INCOMPLETE");
  const std::string now = absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::Now(), absl::LocalTimeZone());
  const bool noted =
      AppendLine(path, Cat(now, " ", hello_.program(), ", process ", hello_.process_id(), " of run ", hello_.run(),
                           ": ", what, ". No server took them: ", connector_.trouble(),
                           may_spill_ ? Cat(". No room for them in ", spool_.directory()) : std::string()));
  return noted ? Cat(what, " (", path, ")") : what;
}

void Sender::LeaveOrRemove() {
  parts_.queue->Close();
  const bool unpacked = !taken_.empty() || !parts_.queue->fill().empty;
  if (outbox_.empty() && outbox_.payloads() == 0 && !unpacked) return parts_.memory->Remove();
  if (may_spill_) {
    outbox_.SpillAll();
    spool_.Keep();
  }
  const bool adopted = parts_.control == nullptr;
  const Outbox::Counts kept = outbox_.InMemory(true), lost = outbox_.InMemory(false);
  const bool left = parts_.memory->outlives() && (adopted || unpacked || kept.batches + kept.payloads > 0);
  if (left) {
    parts_.memory->Leave();
  } else {
    parts_.memory->Remove();
  }
  if (adopted) return;  // whoever has taken it over says so
  std::vector<std::string> places;
  if (may_spill_ && (spool_.held_bytes() > 0 || !left)) places.push_back(spool_.directory());
  if (left) places.push_back(parts_.memory->path());
  const bool whole = lost.batches == 0 && lost.payloads == 0;
  std::vector<std::string> rest;
  if (!places.empty()) {
    rest.push_back(Cat(whole ? "They wait" : "What had room waits", " in ", absl::StrJoin(places, " and "),
                       " for the next program with this dump_path"));
  }
  if (!whole) rest.push_back(NoteLoss(lost));
  parts_.log->Warning(Cat("msprobe: the session ends with ", outbox_.last_sequence() - outbox_.freed_through(),
                          " batches and ", outbox_.payloads(), " tensors that no server has. ",
                          absl::StrJoin(rest, "; "), "."));
}

void Sender::CloseStream() {
  Publish();
  LeaveOrRemove();
  const Clock::time_point deadline = Clock::now() + close_timeout_;
  if (stream_ != nullptr) {
    stream_->FinishWriting();
    while (!stream_->ended().has_value() && Clock::now() < deadline) parts_.bell->WaitUntil(deadline);
    stream_->Cancel();
    ForgetStream();
  }
  // A cancelled call ends at once; a stream that does not is left alone rather than waited for.
  const Clock::time_point last = deadline + milliseconds(500);
  for (std::unique_ptr<IngestStream>& stream : retired_) {
    while (!stream->ended().has_value() && Clock::now() < last) parts_.bell->WaitUntil(last);
    if (!stream->ended().has_value()) [[maybe_unused]]
      IngestStream* const left_alone = stream.release();
  }
  retired_.clear();
}

}  // namespace msprobe::core
