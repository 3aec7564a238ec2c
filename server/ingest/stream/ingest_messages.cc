// Handles the messages of a stream, one function for each kind.

#include <utility>

#include "server/format/cat.h"
#include "server/ingest/stream/ingest_stream.h"

namespace msprobe::server {

absl::Status IngestStream::Decode() {
  // Takes the bytes out of incoming_, whether it can read them or not.
  const grpc::Status status =
      grpc::GenericDeserialize<grpc::ProtoBufferReader, v1::AgentMessage>(&incoming_, &message_);
  return status.ok() ? absl::OkStatus() : absl::InvalidArgumentError("a message that is not an AgentMessage");
}

absl::Status IngestStream::Take(const v1::AgentMessage& message) {
  if (message.has_hello()) return TakeHello(message.hello());
  std::shared_ptr<Session> session;
  {
    absl::MutexLock lock(&mu_);
    session = session_;
  }
  if (session == nullptr) return absl::InvalidArgumentError("the first message of a stream must be a hello");
  if (message.has_batch()) return TakeBatch(*session, message.batch());
  if (message.has_payload_chunk() || message.has_payload_chunks()) return TakePayloads(*session, message);
  if (message.has_control_report()) {
    service_->Report(session_id_, message.control_report());
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "a message that is neither hello, batch, payload_chunk, payload_chunks nor control_report");
}

absl::Status IngestStream::TakeHello(const v1::Hello& hello) {
  {
    absl::MutexLock lock(&mu_);
    if (session_ != nullptr) return absl::InvalidArgumentError("a second hello on one stream");
  }
  if (service_->options_.server_of) {
    auto server = service_->options_.server_of(hello, caller_);
    if (!server.ok()) return server.status();
    if (!server->empty()) {
      Redirect(*server, hello);
      return absl::OkStatus();
    }
  }
  auto session = service_->sessions_->OpenStream(hello, weak_from_this(), caller_);
  if (!session.ok()) return session.status();
  session_id_ = hello.session();
  v1::ServerMessage message;
  v1::Welcome& welcome = *message.mutable_welcome();
  welcome = (*session)->welcome();
  std::unique_ptr<AgentMemory> memory = AgentMemory::Open(hello, service_->sessions_->shared_directories());
  welcome.add_capabilities("payload_chunks");
  welcome.add_capabilities("digests");
  welcome.add_capabilities("edges");
  welcome.add_capabilities("scalars");
  welcome.add_capabilities("responses");
  if (memory != nullptr) welcome.add_capabilities("shared_memory");
  payloads_.emplace(std::move(memory), welcome.max_chunk_bytes(), service_->metrics_);
  {
    absl::MutexLock lock(&mu_);
    session_ = *std::move(session);
    answers_.Open(std::move(message));
    Pump();
  }
  if (const uint64_t limit = service_->bytes_per_second(); limit != 0) Slow(limit);
  return absl::OkStatus();
}

void IngestStream::Redirect(const std::string& server, const v1::Hello& hello) {
  service_->metrics_->Add(Metric::kRedirects, 1);
  v1::ServerMessage message;
  message.mutable_redirect()->set_address(server);
  absl::MutexLock lock(&mu_);
  answers_.Open(std::move(message));
  EndLocked(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                         Cat(RankName(hello.rank()), " of run \"", hello.run(), "\" belongs to ", server)));
}

absl::Status IngestStream::TakeBatch(Session& session, const v1::Batch& batch) {
  // Asked before, since what is new may be durable as soon as it is applied, and is acknowledged then.
  const bool was_durable = batch.batch_sequence() <= session.durable_through();
  auto verdict = session.Apply(batch);
  if (!verdict.ok()) return verdict.status();
  SayVerdict(*std::move(verdict));
  if (was_durable) Acknowledge();
  return absl::OkStatus();
}

absl::Status IngestStream::TakePayloads(Session& session, const v1::AgentMessage& message) {
  v1::PayloadVerdict verdict;
  absl::Status status = payloads_->Take(session, message, verdict);
  SayVerdict(std::move(verdict));
  return status;
}

void IngestStream::SayVerdict(v1::PayloadVerdict verdict) {
  if (verdict.wanted_size() > 0) {
    v1::ServerMessage message;
    message.mutable_payload_verdict()->mutable_wanted()->Swap(verdict.mutable_wanted());
    Say(std::move(message));
  }
  if (verdict.stored_size() > 0) {
    // Stored means durable: then the agent may free it.
    service_->database_->WhenDurable(
        [self = shared_from_this(), verdict = std::move(verdict)](const absl::Status& status) {
          if (!status.ok()) return;
          v1::ServerMessage message;
          *message.mutable_payload_verdict() = verdict;
          self->Say(std::move(message));
        });
  }
}

}  // namespace msprobe::server
