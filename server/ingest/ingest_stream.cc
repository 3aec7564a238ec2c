#include "server/ingest/ingest_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"
#include "server/store/disk/block_buffer.h"

namespace msprobe::server {
namespace {

constexpr int kMaxChunks = 256;
// Of payloads that are stored together: they are read three times, so they had better stay in a core's own cache.
constexpr size_t kTogether = size_t{512} << 10;

// What was read from an agent's memory. Of this thread, so that no stream keeps one.
BlockBuffer& SharedBytes() {
  thread_local BlockBuffer buffer;
  return buffer;
}

bool IsDone(const Session& session) { return session.durable_through() >= session.received_through(); }

}  // namespace

void IngestStream::Begin() { StartRead(&incoming_); }

void IngestStream::OnReadDone(bool ok) {
  if (!ok) {
    // The agent closed its side (or is gone): what it sent is still acknowledged.
    End(grpc::Status::OK);
    return;
  }
  {
    absl::MutexLock lock(&mu_);
    if (ending_ || cut_) return;
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
  if (redirected_) {
    EndLocked(ToGrpc(status));
  } else if (absl::IsAborted(status)) {
    EndAtOnce(status);  // as OnReplaced, which is about to come or has come
  } else if (!status.ok()) {
    service_->metrics_->Add(Metric::kIngestRefused, 1,
                            {absl::AsciiStrToLower(absl::StatusCodeToString(status.code()))});
    service_->refusals_.Note("a stream", caller_.peer, StdView(status.message()));
    EndLocked(ToGrpc(status));
  }
  applying_ = false;
  // Under the lock: once the call is finished, no read may begin.
  if (!ending_ && !cut_) StartRead(&incoming_);
  Advance();
}

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
  if (message.has_batch()) {
    auto verdict = session->Apply(message.batch());
    if (!verdict.ok()) return verdict.status();
    SendVerdict(*std::move(verdict));
    Acknowledge();
    return absl::OkStatus();
  }
  if (message.has_payload_chunk() || message.has_payload_chunks()) return TakeChunks(*session, message);
  if (message.has_control_report()) {
    service_->Report(session_id_, message.control_report());
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "a message that is neither hello, batch, payload_chunk, payload_chunks nor control_report");
}

absl::Status IngestStream::TakeChunks(Session& session, const v1::AgentMessage& message) {
  const auto& several = message.payload_chunks().chunk();
  if (several.size() > kMaxChunks) {
    return absl::InvalidArgumentError(Cat("payload_chunks has ", several.size(), " chunks, at most ", kMaxChunks));
  }
  std::vector<const v1::PayloadChunk*> chunks;
  if (message.has_payload_chunk()) chunks.push_back(&message.payload_chunk());
  for (const v1::PayloadChunk& chunk : several) chunks.push_back(&chunk);
  v1::PayloadVerdict verdict;
  absl::Status status;
  for (std::span<const v1::PayloadChunk* const> left(chunks); status.ok() && !left.empty();) {
    absl::StatusOr<size_t> together = TakeWhole(session, left, verdict);
    if (!together.ok()) {
      status = together.status();
    } else if (*together > 0) {
      left = left.subspan(*together);
    } else {
      const v1::PayloadChunk& chunk = *left.front();
      status = chunk.shared_size() == 0 ? TakeChunk(session, chunk, chunk.content(), verdict)
                                        : TakeSharedChunk(session, chunk, verdict);
      left = left.subspan(1);
    }
  }
  SendVerdict(std::move(verdict));  // of those before the one that is refused, too
  return status;
}

absl::StatusOr<size_t> IngestStream::TakeWhole(Session& session, std::span<const v1::PayloadChunk* const> chunks,
                                               v1::PayloadVerdict& verdict) {
  std::vector<Session::WholePayload> payloads;
  char* const bytes = SharedBytes().Take(std::max<size_t>(kTogether, max_chunk_bytes_ + Extent::kAlignment));
  size_t used = 0;
  for (const v1::PayloadChunk* chunk : chunks) {
    if (chunk->offset() != 0 || !chunk->last()) break;
    const uint32_t size = chunk->shared_size();
    if (size == 0) {
      if (chunk->content().empty() || chunk->content().size() > max_chunk_bytes_) break;
      payloads.push_back({chunk->hash(), chunk->content()});
      continue;
    }
    // Each at the beginning of a block, so that segments take them with one write.
    const size_t padded = (size_t{size} + Extent::kAlignment - 1) / Extent::kAlignment * Extent::kAlignment;
    if (memory_ == nullptr || !chunk->content().empty() || size > max_chunk_bytes_) break;
    if (used > 0 && used + padded > kTogether) break;
    if (!memory_->Read(chunk->shared_offset(), size, bytes + used).ok()) break;
    std::memset(bytes + used + size, 0, padded - size);
    payloads.push_back({chunk->hash(), std::string_view(bytes + used, size)});
    used += padded;
  }
  if (payloads.empty()) return 0;
  absl::StatusOr<size_t> taken = session.AddWhole(payloads, verdict);
  if (!taken.ok()) return taken;
  for (const v1::PayloadChunk* chunk : chunks.first(*taken)) {
    service_->metrics_->Add(Metric::kSharedBytes, chunk->shared_size());
  }
  return taken;
}

absl::Status IngestStream::TakeChunk(Session& session, const v1::PayloadChunk& chunk, std::string_view content,
                                     v1::PayloadVerdict& verdict) {
  auto answer = session.AddPayload(chunk, content);
  if (absl::IsDataLoss(answer.status())) {
    // That payload stays missing; what else the stream carries is not to blame.
    LogWarning("{}", answer.status().ToString());
    // The memory may hold something else by now; a message holds what the agent has.
    if (chunk.shared_size() > 0) verdict.add_wanted(chunk.hash());
    return absl::OkStatus();
  }
  if (answer.ok()) verdict.MergeFrom(*answer);
  return answer.status();
}

absl::Status IngestStream::TakeSharedChunk(Session& session, const v1::PayloadChunk& chunk,
                                           v1::PayloadVerdict& verdict) {
  const uint32_t size = chunk.shared_size();
  if (memory_ == nullptr || !chunk.content().empty() || size > max_chunk_bytes_) {
    return absl::InvalidArgumentError(Cat("payload_chunk.shared_size is ", size, ", at most ", max_chunk_bytes_,
                                          "; 0 where Welcome does not say shared_memory, and beside a content"));
  }
  char* const bytes = SharedBytes().Take(size);
  if (absl::Status status = memory_->Read(chunk.shared_offset(), size, bytes); !status.ok()) {
    return absl::InvalidArgumentError(
        Cat("payload_chunk of ", Hex(chunk.hash()), " at byte ", chunk.offset(), ": ", status.message()));
  }
  const absl::Status status = TakeChunk(session, chunk, std::string_view(bytes, size), verdict);
  if (status.ok()) service_->metrics_->Add(Metric::kSharedBytes, size);
  return status;
}

absl::Status IngestStream::TakeHello(const v1::Hello& hello) {
  {
    absl::MutexLock lock(&mu_);
    if (session_ != nullptr) return absl::InvalidArgumentError("a second hello on one stream");
  }
  if (service_->options_.server_of) {
    auto server = service_->options_.server_of(hello, caller_);
    if (!server.ok()) return server.status();
    if (!server->empty()) return SendTo(*server, hello);
  }
  auto session = service_->sessions_->OpenStream(hello, weak_from_this(), caller_);
  if (!session.ok()) return session.status();
  session_id_ = hello.session();
  v1::ServerMessage welcome;
  *welcome.mutable_welcome() = (*session)->welcome();
  max_chunk_bytes_ = welcome.welcome().max_chunk_bytes();
  memory_ = AgentMemory::Open(hello, service_->sessions_->shared_directories());
  welcome.mutable_welcome()->add_capabilities("payload_chunks");
  welcome.mutable_welcome()->add_capabilities("digests");
  if (memory_ != nullptr) welcome.mutable_welcome()->add_capabilities("shared_memory");
  {
    absl::MutexLock lock(&mu_);
    session_ = *std::move(session);
    // Welcome is the first word, whatever has happened since the session knows of this stream.
    queue_.push_front(std::move(welcome));
    Pump();
  }
  if (const uint64_t limit = service_->bytes_per_second(); limit != 0) Slow(limit);
  return absl::OkStatus();
}

absl::Status IngestStream::SendTo(const std::string& server, const v1::Hello& hello) {
  service_->metrics_->Add(Metric::kRedirects, 1);
  v1::ServerMessage message;
  message.mutable_redirect()->set_address(server);
  absl::MutexLock lock(&mu_);
  redirected_ = true;
  queue_.push_back(std::move(message));
  return absl::FailedPreconditionError(
      Cat(RankName(hello.rank()), " of run \"", hello.run(), "\" belongs to ", server));
}

void IngestStream::Slow(uint64_t bytes_per_second) {
  v1::ServerMessage message;
  message.mutable_throttle()->set_bytes_per_second(bytes_per_second);
  absl::MutexLock lock(&mu_);
  if (session_ == nullptr) return;
  queue_.push_back(std::move(message));
  Pump();
}

void IngestStream::SendVerdict(v1::PayloadVerdict verdict) {
  if (verdict.wanted_size() > 0) {
    v1::ServerMessage message;
    message.mutable_payload_verdict()->mutable_wanted()->Swap(verdict.mutable_wanted());
    Send(std::move(message));
  }
  if (verdict.stored_size() > 0) {
    // Stored means durable: then the agent may free it.
    service_->store_->database().WhenDurable(
        [self = shared_from_this(), verdict = std::move(verdict)](absl::Status status) {
          if (!status.ok()) return;
          v1::ServerMessage message;
          *message.mutable_payload_verdict() = verdict;
          self->Send(std::move(message));
        });
  }
}

void IngestStream::OnDurable(uint64_t) { Acknowledge(); }

void IngestStream::OnSyncFailed(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (!at_once_) LogError("a sync failed, nothing of it is acknowledged: {}", status.ToString());
  EndAtOnce(status);
}

void IngestStream::OnStored(const std::vector<std::string>& hashes) {
  v1::ServerMessage message;
  for (const std::string& hash : hashes) message.mutable_payload_verdict()->add_stored(hash);
  Send(std::move(message));
}

void IngestStream::OnStepExported(const v1::StepExported& exported) {
  v1::ServerMessage message;
  *message.mutable_step_exported() = exported;
  Send(std::move(message));
}

void IngestStream::OnControl(const v1::ControlCommand& command) {
  v1::ServerMessage message;
  *message.mutable_control() = command;
  Send(std::move(message));
}

void IngestStream::OnDumpRoom(const v1::DumpRoom& room) {
  v1::ServerMessage message;
  *message.mutable_dump_room() = room;
  Send(std::move(message));
}

void IngestStream::OnReplaced(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  EndAtOnce(status);
}

void IngestStream::Send(v1::ServerMessage message) {
  absl::MutexLock lock(&mu_);
  queue_.push_back(std::move(message));
  Pump();
}

void IngestStream::Acknowledge() {
  absl::MutexLock lock(&mu_);
  acknowledge_ = true;
  Pump();
}

void IngestStream::End(const grpc::Status& status) {
  absl::MutexLock lock(&mu_);
  EndLocked(status);
}

void IngestStream::EndLocked(const grpc::Status& status) {
  if (ending_) return;
  ending_ = true;
  end_ = status;
  acknowledge_ = session_ != nullptr;
  Pump();
}

void IngestStream::EndAtOnce(const absl::Status& status) {
  at_once_ = true;
  EndLocked(ToGrpc(status));
  Pump();  // also where it is ending already
}

void IngestStream::Cut() {
  queue_.clear();
  acknowledge_ = false;
  cut_ = true;
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
  if (writing_ || finished_) return;
  if (cut_) {
    if (applying_) return;
    finished_ = true;
    return Finish(grpc::Status::CANCELLED);
  }
  if ((session_ != nullptr || redirected_) && !queue_.empty()) {
    Write(queue_.front());
    queue_.pop_front();
  } else if (session_ != nullptr && acknowledge_) {
    acknowledge_ = false;
    v1::ServerMessage message;
    message.mutable_ack()->set_durable_through(session_->durable_through());
    message.mutable_ack()->set_received_through(session_->received_through());
    Write(message);
    service_->metrics_->Add(Metric::kAcks, 1);
  } else {
    // While a sync is under way, its OnDurable comes back here.
    if (ending_ && !applying_ && (session_ == nullptr || at_once_ || IsDone(*session_))) {
      finished_ = true;
      Finish(end_);
    }
    return;
  }
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

void IngestStream::OnCancel() {
  absl::MutexLock lock(&mu_);
  Cut();
}

void IngestStream::OnDone() {
  std::shared_ptr<IngestStream> self = shared_from_this();
  std::shared_ptr<Session> session;
  {
    absl::MutexLock lock(&mu_);
    session.swap(session_);
    finished_ = true;
  }
  session.reset();  // its last use: from here the session waits for another stream
  service_->Remove(self);
}

}  // namespace msprobe::server
