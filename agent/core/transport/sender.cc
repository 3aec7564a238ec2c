#include "agent/core/transport/sender.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "agent/core/background_thread.h"
#include "agent/core/shell_word.h"
#include "agent/core/str_cat.h"
#include "agent/core/utf8.h"

namespace msprobe::core {
namespace {

using std::chrono::milliseconds;

// How long a record may lie in the queue for others to join its batch, unless they fill a chunk; also what a kill -9
// may lose of a running step (the end of one is sent at once). A batch costs both sides about a millisecond of CPU
// however small it is: at 100 ms they were half of what capture cost beside the caller at level L0.
constexpr milliseconds kLinger(500);
// Of records with payloads, which hold memory until they are announced, wanted and stored.
constexpr milliseconds kLingerWithPayloads(100);

std::string Mebibytes(uint64_t bytes) { return Cat(bytes >> 20, " MiB"); }

absl::Status NoFiles(const std::vector<uint32_t>& steps) {
  return absl::DataLossError(
      Cat("the server lost what it had still to export: there are no files of step ", absl::StrJoin(steps, ", ")));
}

// False: nothing was written.
bool AppendLine(const std::string& path, const std::string& line) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::ofstream file(path, std::ios::app);
  file << line << '\n';
  return file.flush().good();
}

void FillReport(const ControlMailbox::Report& report, v1::ControlReport* out) {
  out->set_received(report.received);
  out->set_answered(report.answer.command);
  out->set_said(ToUtf8(report.answer.said));
  out->set_refused(report.answer.refused);
  out->set_holds_from(report.answer.step);
  out->set_enabled(report.state.enabled);
  out->set_capturing(report.state.capturing);
  out->set_task(report.state.task);
  out->set_level(report.state.level);
  out->set_summary_mode(report.state.summary_mode);
  out->set_list(ToUtf8(report.state.list));
  out->set_request(ToUtf8(report.state.request));
  out->set_step(report.state.step);
  out->set_steps_left(report.state.steps_left);
}

}  // namespace

Sender::Sender(const SenderParts& parts, v1::Hello hello, Connector connector, Spool spool, bool may_spill,
               absl::Duration reading_bound)
    : parts_(parts),
      may_spill_(may_spill),
      hello_(std::move(hello)),
      spool_(std::move(spool)),
      packer_(hello_.session(), parts.dictionary),
      outbox_(parts.budget.get(), &spool_, parts.memory),
      drain_(
          &parts_, &packer_, &outbox_, reading_bound, [this](const v1::Marker& marker) { Packed(marker); },
          [this] {
            if (loss_untold_) TellServerLoss();
            Spill();
            Pump();
          }),
      connection_(std::move(connector), parts.bell),
      batches_(&parts_, hello_.session(), &outbox_.batches(), &packer_),
      payloads_(&parts_, &outbox_.payloads()),
      exports_(parts.log) {}

Sender::~Sender() { Stop(absl::ZeroDuration()); }

absl::Status Sender::Restore(Outbox::Left left) {
  drain_.ContinueAt(left.last_entry);
  if (absl::Status status = outbox_.Restore(std::move(left)); !status.ok()) return status;
  packer_.ContinueAt(outbox_.batches().last_sequence() + 1);
  packer_.Verify();
  batches_.Begin();
  return absl::OkStatus();
}

void Sender::AwaitExportsOfLeft() {
  exports_.AskServer();
  const HeldBatches& held = outbox_.batches();
  std::optional<uint32_t> open_step;
  v1::AgentMessage message;
  for (uint64_t sequence = held.freed_through() + 1; sequence <= held.last_sequence(); ++sequence) {
    const absl::StatusOr<HeldBatches::Bytes> bytes = held.Read(sequence);
    if (bytes.ok() && message.ParseFromArray(bytes->view.data(), static_cast<int>(bytes->view.size()))) {
      open_step = exports_.Held(message.batch(), open_step);
    }
  }
  drain_.ContinueIn(open_step);
  hello_.add_capabilities("left");
  stays_connected_ = true;
}

void Sender::Start() {
  if (may_spill_) TellOfSpool(spool_.Check());
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
  drain_.ExpectReadingsUntil(
      Clock::now() + absl::ToChronoNanoseconds(std::clamp(from_now, absl::ZeroDuration(), absl::Hours(24 * 365))));
  parts_.bell->Ring();
}

absl::Status Sender::Wait(uint64_t entry, absl::Duration timeout) {
  const Clock::time_point deadline =
      Clock::now() + absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24 * 365)));
  return waiters_.Wait(entry, deadline, parts_.bell.get());
}

void Sender::Run() {
  while (!stop_) {
    const Clock::time_point due = Round(Clock::now());
    NoteBackgroundTime();
    parts_.bell->WaitUntil(due);
  }
  DrainQueue(Clock::now());
  Publish();
  LeaveOrRemove();
  connection_.Close(Clock::now() + close_timeout_);
  ForgetStream();
}

Sender::Clock::time_point Sender::Round(Clock::time_point now) {
  Clock::time_point due = DrainQueue(now);
  TendConnection(now);
  Spill();
  due = std::min(due, Connect(now));
  SendReport();
  Pump();
  due = std::min(due, connection_.NextDue(now));
  Publish();
  Answer();
  return due;
}

Sender::Clock::time_point Sender::DrainQueue(Clock::time_point now) {
  return drain_.Drain(now, HasPayloads(hello_.settings().task()) ? kLingerWithPayloads : kLinger);
}

void Sender::Packed(const v1::Marker& marker) {
  exports_.Packed(marker, drain_.open_step(),
                  {.entry = drain_.packed_entries(), .batch = outbox_.batches().last_sequence() + 1});
  if (marker.has_rank_known()) *hello_.mutable_rank() = marker.rank_known().rank();
  if (marker.has_settings_changed()) *hello_.mutable_settings() = marker.settings_changed().settings();
}

void Sender::Spill() {
  // Half: what comes while the disk is written to still has room.
  if (!may_spill_ || parts_.budget->used() <= parts_.budget->ceiling() / 2) return;
  while (parts_.budget->used() > parts_.budget->ceiling() / 8 * 3 && !spool_.full() && outbox_.SpillOldest()) {
  }
  parts_.counters->spool_full = spool_.full();
  if (spool_.full()) TellOfSpool(spool_.failure());
}

void Sender::TellOfSpool(const absl::Status& failure) {
  // Of what a dead process left, whoever sends it tells.
  if (failure.ok() || parts_.control == nullptr || std::exchange(spool_told_, true)) return;
  parts_.log->Warning(Cat("msprobe: the spool takes nothing: ", failure.message(),
                          ". Records that no server takes wait in memory; when memory_ceiling_mb is reached, steps "
                          "stall, and after stall_bound_s records are lost."));
  ++parts_.counters->faults;
}

Sender::Clock::time_point Sender::Connect(Clock::time_point now) {
  Clock::time_point next_attempt = Clock::time_point::max();
  // A server that is gone with everything in its store has files to write still.
  const bool has_cause = stays_connected_ || !outbox_.empty() || exports_.any();
  if (connection_.state() == Connection::State::kClosed && has_cause) next_attempt = connection_.Open(now);
  if (connection_.state() == Connection::State::kOpen) {
    const bool shares = parts_.shares_memory && HasPayloads(hello_.settings().task());
    hello_.set_freed_through(outbox_.batches().freed_through());
    hello_.set_shared_file(shares ? parts_.memory->name() : "");
    exports_.AddTo(&hello_);
    connection_.Greet(hello_);
  }
  return next_attempt;
}

void Sender::TendConnection(Clock::time_point now) {
  const std::optional<grpc::Status> ended =
      connection_.Tend(now, [this](const v1::ServerMessage& message) { Handle(message); });
  if (!ended.has_value()) return;
  if (connection_.welcomed() && ended->error_code() == grpc::StatusCode::INVALID_ARGUMENT) batches_.Refused();
  connection_.End(now, *ended);
  ForgetStream();
}

void Sender::ForgetStream() {
  payloads_.Forget();
  reported_.reset();
}

void Sender::Handle(const v1::ServerMessage& message) {
  switch (message.kind_case()) {
    case v1::ServerMessage::kWelcome:
      return HandleWelcome(message.welcome());
    case v1::ServerMessage::kAck:
      return HandleAck(message.ack());
    case v1::ServerMessage::kPayloadVerdict:
      return payloads_.Take(message.payload_verdict());
    case v1::ServerMessage::kStepExported:
      ++parts_.counters->steps_exported;
      return exports_.Exported(message.step_exported());
    case v1::ServerMessage::kThrottle:
      return connection_.Throttled(message.throttle().bytes_per_second());
    case v1::ServerMessage::kControl:
      return HandleControl(message.control());
    case v1::ServerMessage::kDumpRoom:
      return HandleDumpRoom(message.dump_room());
    case v1::ServerMessage::kAlarm:
      return HandleAlarm(message.alarm());
    case v1::ServerMessage::kRedirect:
      return connection_.Redirected(message.redirect().address());
    default:
      return;
  }
}

void Sender::HandleWelcome(const v1::Welcome& welcome) {
  connection_.Welcomed(welcome);
  parts_.memory->NoteServer(connection_.target());
  outbox_.batches().Acknowledge(welcome.durable_through());
  // The server says it again until a batch has come behind the loss.
  const uint64_t freed_through = outbox_.batches().freed_through();
  if (welcome.durable_through() < freed_through && std::exchange(lost_through_, freed_through) != freed_through) {
    ReportServerLoss(welcome.durable_through());
  }
  exports_.Welcomed(connection_.offers().exports,
                    {welcome.unexported_steps().begin(), welcome.unexported_steps().end()}, welcome.durable_through());
  batches_.Begin();
  v1::PayloadVerdict missing;
  *missing.mutable_wanted() = welcome.missing_payloads();
  // Nobody asks for those that lost batches announced.
  outbox_.payloads().ReleaseUnlessMissing(freed_through, {missing.wanted().begin(), missing.wanted().end()});
  payloads_.Take(missing);
}

void Sender::HandleAck(const v1::Ack& ack) {
  std::atomic<uint64_t>& received_through = parts_.counters->received_through;
  received_through = std::max<uint64_t>(received_through, ack.received_through());
  outbox_.batches().Acknowledge(ack.durable_through());
  batches_.Acknowledged();
}

void Sender::HandleControl(const v1::ControlCommand& command) {
  if (parts_.control == nullptr) return;
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

void Sender::HandleAlarm(const v1::AlarmRaised& alarm) {
  parts_.log->Warning(Cat("msprobe: alarm ", alarm.number(), " (", alarm.rule(), "): step ", alarm.step(), ", ",
                          alarm.series(), ": ", alarm.why(), ". More of it: msprobe-client alarms ",
                          ShellWord(hello_.run()), " ", connection_.client_option()));
}

void Sender::ReportServerLoss(uint64_t durable_through) {
  const uint64_t freed_through = outbox_.batches().freed_through();
  parts_.log->Warning(Cat("msprobe: the server no longer has records that it had acknowledged (up to batch ",
                          freed_through, "); the run has a gap."));
  const std::vector<uint32_t> steps = exports_.ServerLost(durable_through, freed_through);
  if (!steps.empty()) parts_.log->Error(Cat("msprobe: ", NoFiles(steps).message()));
  TellServerLoss();
}

void Sender::TellServerLoss() {
  loss_untold_ = false;
  if (batches_.ReportServerLoss()) return;
  const std::optional<uint32_t> open_step = drain_.open_step();
  // A gap in a step that has ended would take the place of the step's files.
  if (!open_step.has_value()) {
    loss_untold_ = true;
    return;
  }
  v1::Marker marker;
  marker.mutable_gap()->set_reason(v1::Marker::Gap::SERVER_LOST);
  marker.mutable_gap()->set_step(*open_step);
  packer_.RestateDefinitions();
  packer_.AddMarker(marker, open_step);
  drain_.Cut();
}

void Sender::SendReport() {
  if (!reported_.has_value() || !connection_.writable()) return;
  const ControlMailbox::Report report = parts_.control->report();
  if (report.version == *reported_) return;
  v1::AgentMessage message;
  v1::ControlReport* const out = message.mutable_control_report();
  FillReport(report, out);
  out->set_queue_bytes(parts_.budget->used() + spool_.held_bytes());
  out->set_records_emitted(parts_.counters->fragments_emitted);
  out->set_records_dropped(parts_.counters->fragments_dropped);
  if (connection_.Send(OwnedMessage(message.SerializeAsString()))) reported_ = report.version;
}

void Sender::Pump() {
  const auto write = [this](const grpc::ByteBuffer& message, size_t content) {
    if (!connection_.Send(message, content)) return false;
    parts_.counters->bytes_sent += content;
    return true;
  };
  const ServerOffers& offers = connection_.offers();
  const auto send_batch = [&] {
    const KnownColumns known{
        .digests = offers.digests, .edges = offers.edges, .scalars = offers.scalars, .responses = offers.responses};
    return batches_.SendNext(known, write);
  };
  const auto send_payload = [&] { return payloads_.SendNext(connection_.offers(), write); };
  while (connection_.MaySendContent(Clock::now())) {
    payload_next_ = !payload_next_;
    const bool sent = payload_next_ ? send_payload() || send_batch() : send_batch() || send_payload();
    if (!sent) return;
  }
}

void Sender::Answer() {
  uint64_t told = 0;
  waiters_.Answer([&](uint64_t entry) {
    absl::Status status = Standing(entry);
    if (absl::IsDataLoss(status)) told = std::max(told, entry);
    return status;
  });
  exports_.ForgetLost(told);
}

absl::Status Sender::Standing(uint64_t entry) const {
  if (const std::string missing = Missing(entry); !missing.empty()) return absl::UnavailableError(missing);
  const std::vector<uint32_t> lost = exports_.Lost(entry);
  return lost.empty() ? absl::OkStatus() : NoFiles(lost);
}

std::string Sender::Missing(uint64_t entry) const {
  std::vector<std::string> missing;
  const uint64_t sequence = outbox_.batches().SequenceOfEntry(entry);
  if (drain_.packed_entries() < entry) {
    missing.push_back(drain_.waits_for_reading() ? "numbers are on their way from the device"
                                                 : "records are still being packed");
  }
  if (sequence > outbox_.batches().freed_through()) {
    missing.push_back(Cat(sequence - outbox_.batches().freed_through(), " batches are not durable"));
  }
  if (const uint64_t payloads = outbox_.payloads().CountThrough(sequence); payloads > 0) {
    missing.push_back(Cat(payloads, " tensors are not stored"));
  }
  if (const std::vector<uint32_t> steps = exports_.Missing(entry); !steps.empty()) {
    missing.push_back(Cat("not exported: step ", absl::StrJoin(steps, ", ")));
  }
  if (exports_.unknown()) missing.push_back("which steps are not exported is not known");
  if (!missing.empty() && !connection_.welcomed()) {
    const std::string& trouble = connection_.trouble();
    missing.push_back(Cat("the server is not connected", trouble.empty() ? "" : Cat(" (", trouble, ")")));
  }
  return absl::StrJoin(missing, "; ");
}

void Sender::Publish() {
  if (parts_.memory->lacked_room() && !std::exchange(lack_said_, true)) {
    parts_.log->Warning(
        Cat("msprobe: ", parts_.memory->path(),
            " has no room left that it may take; what had none there dies with this process if it is killed."));
  }
  AtomicCounters& counters = *parts_.counters;
  counters.received_through = std::max<uint64_t>(counters.received_through, outbox_.batches().freed_through());
  counters.durable_through = outbox_.batches().freed_through();
  counters.bytes_spooled = spool_.held_bytes();
  counters.connected = connection_.welcomed();
  counters.spool_full = spool_.full();
}

std::string Sender::NoteLoss(const Outbox::Counts& lost) const {
  std::string what = Cat(lost.batches, " batches and ", lost.payloads, " tensors are lost");
  if (hello_.settings().dump_path().empty()) return what;
  const std::string path = Cat(hello_.settings().dump_path(), "/INCOMPLETE");
  const std::string now = absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::Now(), absl::LocalTimeZone());
  const bool noted =
      AppendLine(path, Cat(now, " ", hello_.program(), ", process ", hello_.process_id(), " of run ", hello_.run(),
                           ": ", what, ". No server took them: ", connection_.trouble(),
                           may_spill_ ? Cat(". No room for them in ", spool_.directory()) : std::string()));
  return noted ? Cat(what, " (", path, ")") : what;
}

void Sender::LeaveOrRemove() {
  parts_.queue->Close();
  const bool unpacked = !drain_.empty() || !parts_.queue->fill().empty;
  if (outbox_.empty() && !unpacked) return parts_.memory->Remove();
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
  parts_.log->Warning(Cat("msprobe: the session ends with ",
                          outbox_.batches().last_sequence() - outbox_.batches().freed_through(), " batches and ",
                          outbox_.payloads().count(), " tensors that no server has. ", absl::StrJoin(rest, "; "), "."));
}

}  // namespace msprobe::core
