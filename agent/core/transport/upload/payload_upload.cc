#include "agent/core/transport/upload/payload_upload.h"

#include <utility>

#include "absl/status/statusor.h"

namespace msprobe::core {
namespace {

// A message costs both sides more than a copy of this many bytes does.
constexpr size_t kCopiedBytes = size_t{64} << 10;
// At most so much in one message, so that others have their turn.
constexpr int kMessageChunks = 64;
constexpr size_t kMessageBytes = size_t{4} << 20;

bool ReadFromMemory(const HeldPayloads::Part& part, const ServerOffers& offers) {
  return offers.memory && part.shared_offset.has_value();
}

// Whether it may go with others in one message.
bool IsLight(const HeldPayloads::Part& part, const ServerOffers& offers) {
  return offers.chunks && (part.bytes.size() <= kCopiedBytes || ReadFromMemory(part, offers));
}

}  // namespace

void PayloadUpload::Take(const v1::PayloadVerdict& verdict) {
  for (const std::string& hash : verdict.stored()) {
    if (current_.has_value() && current_->hash == hash) current_.reset();
    queued_.erase(hash);
    held_->Release(hash);
  }
  for (const std::string& hash : verdict.wanted()) {
    if (!held_->Holds(hash)) {
      ++parts_.counters->payloads_dropped;
    } else if (held_->IsLent(hash)) {
      // The server read something else there than the hash says.
      held_->EndLending(hash);
      wanted_.push_back(hash);
    } else if (queued_.insert(hash).second) {
      wanted_.push_back(hash);
    }
  }
}

void PayloadUpload::Forget() {
  wanted_.clear();
  queued_.clear();
  current_.reset();
  held_->EndLending();
}

bool PayloadUpload::Begin() {
  // A lent payload leaves memory only when it is stored, so what is lent stays below a quarter of the ceiling, or
  // exceeds that by one payload.
  if (held_->lent_bytes() > parts_.budget->ceiling() / 4) return false;
  while (!current_.has_value() && !wanted_.empty()) {
    if (held_->Holds(wanted_.front())) current_ = Current{.hash = std::move(wanted_.front())};
    wanted_.pop_front();
  }
  return current_.has_value();
}

std::optional<HeldPayloads::Part> PayloadUpload::NextPart(size_t size) {
  while (current_.has_value() || Begin()) {
    absl::StatusOr<HeldPayloads::Part> part = held_->Read(current_->hash, current_->offset, size);
    if (part.ok()) return *std::move(part);
    DropCurrent();
  }
  return std::nullopt;
}

void PayloadUpload::Passed(const HeldPayloads::Part& part) {
  current_->offset += part.bytes.size();
  if (!part.last) return;
  if (!held_->Intact(current_->hash)) return DropCurrent();  // the server refuses it, by its hash
  current_.reset();
}

void PayloadUpload::DropCurrent() {
  ++parts_.counters->payloads_dropped;
  held_->Release(current_->hash);
  current_.reset();
}

bool PayloadUpload::SendNext(const ServerOffers& offers, WriteContent write) {
  std::optional<HeldPayloads::Part> part = NextPart(offers.chunk_bytes);
  if (!part.has_value()) return false;
  if (IsLight(*part, offers)) return SendTogether(*std::move(part), offers, write);
  const grpc::ByteBuffer message = ChunkMessage(current_->hash, current_->offset, part->bytes, part->last, part->owner);
  if (!write(message, part->bytes.size())) return false;
  Passed(*part);
  return true;
}

bool PayloadUpload::SendTogether(HeldPayloads::Part first, const ServerOffers& offers, WriteContent write) {
  v1::AgentMessage message;
  v1::PayloadChunks& chunks = *message.mutable_payload_chunks();
  size_t bytes = 0;
  for (std::optional<HeldPayloads::Part> part = std::move(first); part.has_value() && IsLight(*part, offers);
       part = NextPart(offers.chunk_bytes)) {
    v1::PayloadChunk& chunk = *chunks.add_chunk();
    chunk.set_hash(current_->hash);
    chunk.set_offset(current_->offset);
    chunk.set_last(part->last);
    if (ReadFromMemory(*part, offers)) {
      held_->Lend(current_->hash);
      chunk.set_shared_offset(*part->shared_offset);
      chunk.set_shared_size(static_cast<uint32_t>(part->bytes.size()));
    } else {
      chunk.set_content(part->bytes.data(), part->bytes.size());
    }
    bytes += part->bytes.size();
    Passed(*part);
    if (chunks.chunk_size() >= kMessageChunks || bytes >= kMessageBytes) break;
  }
  // Where this is not written the stream has ended, and with it everything that was on its way.
  return write(OwnedMessage(message.SerializeAsString()), bytes);
}

}  // namespace msprobe::core
