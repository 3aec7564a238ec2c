// How a Sender sends payloads.

#include <utility>

#include "agent/core/transport/sender.h"

namespace msprobe::core {
namespace {

// A message costs both sides more than a copy of this many bytes does.
constexpr size_t kCopiedBytes = size_t{64} << 10;
// What one message brings at most, so that others have their turn.
constexpr int kMessageChunks = 64;
constexpr size_t kMessageBytes = size_t{4} << 20;

}  // namespace

void Sender::HandleVerdict(const v1::PayloadVerdict& verdict) {
  for (const std::string& hash : verdict.stored()) {
    if (upload_.has_value() && upload_->hash == hash) upload_.reset();
    queued_.erase(hash);
    outbox_.Stored(hash);
  }
  for (const std::string& hash : verdict.wanted()) {
    if (!outbox_.Holds(hash)) {
      ++parts_.counters->payloads_dropped;
    } else if (outbox_.IsLent(hash)) {
      // What it read was something else.
      outbox_.EndLending(hash);
      wanted_.push_back(hash);
    } else if (queued_.insert(hash).second) {
      wanted_.push_back(hash);
    }
  }
}

bool Sender::BeginUpload() {
  // What is lent leaves memory only when it is stored, so it is a part of the ceiling, but for one payload that is
  // larger.
  if (outbox_.lent_bytes() > parts_.budget->ceiling() / 4) return false;
  while (!upload_.has_value() && !wanted_.empty()) {
    if (outbox_.Holds(wanted_.front())) upload_ = Upload{.hash = std::move(wanted_.front())};
    wanted_.pop_front();
  }
  return upload_.has_value();
}

std::optional<Outbox::PayloadPart> Sender::NextPart() {
  while (upload_.has_value() || BeginUpload()) {
    absl::StatusOr<Outbox::PayloadPart> part = outbox_.ReadPayload(upload_->hash, upload_->offset, max_chunk_bytes_);
    if (part.ok()) return *std::move(part);
    ++parts_.counters->payloads_dropped;
    outbox_.DropPayload(upload_->hash);
    upload_.reset();
  }
  return std::nullopt;
}

void Sender::Passed(const Outbox::PayloadPart& part) {
  upload_->offset += part.bytes.size();
  if (!part.last) return;
  // The server has refused it already, by its hash.
  if (!outbox_.Intact(upload_->hash)) {
    ++parts_.counters->payloads_dropped;
    outbox_.DropPayload(upload_->hash);
  }
  upload_.reset();
}

bool Sender::IsLight(const Outbox::PayloadPart& part) const {
  if (!server_takes_chunks_) return false;
  return part.bytes.size() <= kCopiedBytes || (server_reads_memory_ && part.shared_offset.has_value());
}

bool Sender::SendChunk() {
  std::optional<Outbox::PayloadPart> part = NextPart();
  if (!part.has_value()) return false;
  if (IsLight(*part)) return SendChunks(*std::move(part));
  if (!stream_->Write(ChunkMessage(upload_->hash, upload_->offset, part->bytes, part->last, part->owner))) return false;
  Sent(part->bytes.size());
  Passed(*part);
  return true;
}

bool Sender::SendChunks(Outbox::PayloadPart first) {
  v1::AgentMessage message;
  v1::PayloadChunks& chunks = *message.mutable_payload_chunks();
  size_t bytes = 0;
  for (std::optional<Outbox::PayloadPart> part = std::move(first); part.has_value() && IsLight(*part);
       part = NextPart()) {
    v1::PayloadChunk& chunk = *chunks.add_chunk();
    chunk.set_hash(upload_->hash);
    chunk.set_offset(upload_->offset);
    chunk.set_last(part->last);
    if (server_reads_memory_ && part->shared_offset.has_value()) {
      outbox_.Lend(upload_->hash);
      chunk.set_shared_offset(*part->shared_offset);
      chunk.set_shared_size(static_cast<uint32_t>(part->bytes.size()));
    } else {
      chunk.set_content(part->bytes.data(), part->bytes.size());
    }
    bytes += part->bytes.size();
    Passed(*part);
    if (chunks.chunk_size() >= kMessageChunks || bytes >= kMessageBytes) break;
  }
  Sent(bytes);
  // Where it is not written the stream has ended, and with it everything that was under way.
  return stream_->Write(OwnedMessage(message.SerializeAsString()));
}

}  // namespace msprobe::core
