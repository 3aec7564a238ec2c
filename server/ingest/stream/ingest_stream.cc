#include "server/ingest/stream/ingest_stream.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

bool IsDurable(const Session& session) { return session.durable_through() >= session.received_through(); }

}  // namespace

void IngestStream::Begin() { StartRead(&incoming_); }

// --- reading ------------------------------------------------------------------------------------------------------

void IngestStream::OnReadDone(bool ok) {
  if (!ok) {
    // The agent closed its side (or is gone): what it sent is still acknowledged.
    End(grpc::Status::OK);
    return;
  }
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kOpen) return;
    applying_ = true;
  }
  service_->apply_.Run([self = shared_from_this()] { self->Apply(); });
}

void IngestStream::Apply() {
  absl::Status status = Decode();
  if (status.ok()) status = Take(message_);
  message_.Clear();
  service_->tell_.Run([self = shared_from_this(), status = std::move(status)] { self->Applied(status); });
}

void IngestStream::Applied(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (absl::IsAborted(status)) {
    EndAtOnce(status);  // as OnReplaced, which is about to come or has come
  } else if (!status.ok()) {
    service_->metrics_->Add(Metric::kIngestRefused, 1,
                            {absl::AsciiStrToLower(absl::StatusCodeToString(status.code()))});
    service_->refusals_.Note("a stream", caller_.peer, StdView(status.message()));
    EndLocked(ToGrpc(status));
  }
  applying_ = false;
  // Under the lock: once the call is finished, no read may begin.
  if (state_ == State::kOpen) StartRead(&incoming_);
  Advance();
}

// --- writing ------------------------------------------------------------------------------------------------------

void IngestStream::Say(v1::ServerMessage message) {
  absl::MutexLock lock(&mu_);
  answers_.Add(std::move(message));
  Pump();
}

void IngestStream::Acknowledge() {
  absl::MutexLock lock(&mu_);
  answers_.Acknowledge();
  Pump();
}

void IngestStream::Slow(uint64_t bytes_per_second) {
  v1::ServerMessage message;
  message.mutable_throttle()->set_bytes_per_second(bytes_per_second);
  absl::MutexLock lock(&mu_);
  if (session_ == nullptr) return;
  answers_.Add(std::move(message));
  Pump();
}

void IngestStream::Pump() {
  if (pumping_) return;
  pumping_ = true;
  service_->tell_.Run([self = shared_from_this()] {
    absl::MutexLock lock(&self->mu_);
    self->pumping_ = false;
    self->Advance();
  });
}

void IngestStream::Advance() {
  if (writing_ || state_ == State::kFinished) return;
  if (state_ == State::kCut) {
    if (!applying_) FinishWith(grpc::Status::CANCELLED);
    return;
  }
  if (const std::optional<v1::ServerMessage> next = answers_.Next(session_.get()); next.has_value()) {
    if (next->has_ack()) service_->metrics_->Add(Metric::kAcks, 1);
    Write(*next);
    return;
  }
  if (state_ == State::kOpen || applying_) return;
  // While a sync is under way, its OnDurable comes back here.
  const bool waits = state_ == State::kEnding && session_ != nullptr && !IsDurable(*session_);
  if (!waits) FinishWith(end_);
}

void IngestStream::Write(const v1::ServerMessage& message) {
  outgoing_.Clear();  // what the last write left
  bool own = false;
  grpc::GenericSerialize<grpc::ProtoBufferWriter, v1::ServerMessage>(message, &outgoing_, &own);
  writing_ = true;
  StartWrite(&outgoing_);
}

void IngestStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mu_);
  writing_ = false;
  if (!ok) return Cut();
  Advance();
}

// --- ending -------------------------------------------------------------------------------------------------------

void IngestStream::End(const grpc::Status& status) {
  absl::MutexLock lock(&mu_);
  EndLocked(status);
}

void IngestStream::EndLocked(const grpc::Status& status) {
  if (state_ != State::kOpen) return;
  state_ = State::kEnding;
  end_ = status;
  if (session_ != nullptr) answers_.Acknowledge();
  Pump();
}

void IngestStream::EndAtOnce(const absl::Status& status) {
  EndLocked(ToGrpc(status));
  if (state_ == State::kEnding) state_ = State::kEndingAtOnce;
  Pump();  // also where it was ending already
}

void IngestStream::Cut() {
  if (state_ == State::kFinished) return;
  state_ = State::kCut;
  answers_.Clear();
  Pump();
}

void IngestStream::OnCancel() {
  absl::MutexLock lock(&mu_);
  Cut();
}

void IngestStream::FinishWith(const grpc::Status& status) {
  state_ = State::kFinished;
  Finish(status);
}

void IngestStream::OnDone() {
  std::shared_ptr<IngestStream> self = shared_from_this();
  std::shared_ptr<Session> session;
  {
    absl::MutexLock lock(&mu_);
    session.swap(session_);
    state_ = State::kFinished;
  }
  session.reset();  // its last use: from here the session waits for another stream
  service_->Remove(self);
}

// --- what the session tells ---------------------------------------------------------------------------------------

void IngestStream::OnDurable(uint64_t) { Acknowledge(); }

void IngestStream::OnSyncFailed(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (state_ != State::kEndingAtOnce) LogError("a sync failed, nothing of it is acknowledged: {}", status.ToString());
  EndAtOnce(status);
}

void IngestStream::OnStored(const std::vector<std::string>& hashes) {
  v1::ServerMessage message;
  for (const std::string& hash : hashes) message.mutable_payload_verdict()->add_stored(hash);
  Say(std::move(message));
}

void IngestStream::OnStepExported(const v1::StepExported& exported) {
  v1::ServerMessage message;
  *message.mutable_step_exported() = exported;
  Say(std::move(message));
}

void IngestStream::OnControl(const v1::ControlCommand& command) {
  v1::ServerMessage message;
  *message.mutable_control() = command;
  Say(std::move(message));
}

void IngestStream::OnDumpRoom(const v1::DumpRoom& room) {
  v1::ServerMessage message;
  *message.mutable_dump_room() = room;
  Say(std::move(message));
}

void IngestStream::OnAlarm(const v1::AlarmRaised& alarm) {
  v1::ServerMessage message;
  *message.mutable_alarm() = alarm;
  Say(std::move(message));
}

void IngestStream::OnReplaced(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  EndAtOnce(status);
}

}  // namespace msprobe::server
