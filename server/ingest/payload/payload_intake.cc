#include "server/ingest/payload/payload_intake.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "server/format/cat.h"
#include "server/format/storage/extent.h"
#include "server/format/storage/key.h"
#include "server/metrics/log.h"
#include "server/store/disk/block_buffer.h"

namespace msprobe::server {
namespace {

constexpr int kMaxChunks = 256;
// Bytes of payloads that are stored together. They are read three times, so they had better stay in a core's own cache.
constexpr size_t kTogether = size_t{512} << 10;

// What was read from an agent's memory. One buffer a thread, so that no stream keeps one.
BlockBuffer& SharedBytes() {
  thread_local BlockBuffer buffer;
  return buffer;
}

}  // namespace

absl::Status PayloadIntake::Take(Session& session, const v1::AgentMessage& message, v1::PayloadVerdict& verdict) {
  const auto& several = message.payload_chunks().chunk();
  if (several.size() > kMaxChunks) {
    return absl::InvalidArgumentError(Cat("payload_chunks has ", several.size(), " chunks, at most ", kMaxChunks));
  }
  std::vector<const v1::PayloadChunk*> chunks;
  if (message.has_payload_chunk()) chunks.push_back(&message.payload_chunk());
  for (const v1::PayloadChunk& chunk : several) chunks.push_back(&chunk);
  for (std::span<const v1::PayloadChunk* const> left(chunks); !left.empty();) {
    absl::StatusOr<size_t> together = TakeWhole(session, left, verdict);
    if (!together.ok()) return together.status();
    if (*together > 0) {
      left = left.subspan(*together);
      continue;
    }
    const v1::PayloadChunk& chunk = *left.front();
    absl::Status status = chunk.shared_size() == 0 ? TakeChunk(session, chunk, chunk.content(), verdict)
                                                   : TakeSharedChunk(session, chunk, verdict);
    if (!status.ok()) return status;
    left = left.subspan(1);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> PayloadIntake::TakeWhole(Session& session, std::span<const v1::PayloadChunk* const> chunks,
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
    metrics_->Add(Metric::kSharedBytes, chunk->shared_size());
  }
  return taken;
}

absl::Status PayloadIntake::TakeChunk(Session& session, const v1::PayloadChunk& chunk, std::string_view content,
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

absl::Status PayloadIntake::TakeSharedChunk(Session& session, const v1::PayloadChunk& chunk,
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
  absl::Status status = TakeChunk(session, chunk, std::string_view(bytes, size), verdict);
  if (status.ok()) metrics_->Add(Metric::kSharedBytes, size);
  return status;
}

}  // namespace msprobe::server
