#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/ingest/payload/agent_memory.h"
#include "server/ingest/session/session.h"
#include "server/metrics/metrics.h"

namespace msprobe::server {

// Takes the payload chunks of one stream into its session. The content of a chunk lies in its message, or in the memory
// that an agent of this machine shares.
//
// Threads: one at a time.
class PayloadIntake {
 public:
  // `memory`: null where the agent shares none. The metrics are borrowed.
  PayloadIntake(std::unique_ptr<AgentMemory> memory, uint32_t max_chunk_bytes, Metrics* metrics)
      : memory_(std::move(memory)), max_chunk_bytes_(max_chunk_bytes), metrics_(metrics) {}

  // Takes payload_chunk or payload_chunks, chunk after chunk, up to the first that is refused. `verdict` is what the
  // agent is to hear of those before it. Errors as Session::AddPayload, but for DataLoss: that payload is still
  // missing, and the others go on. InvalidArgument: too many chunks, or shared memory that cannot be read.
  absl::Status Take(Session& session, const v1::AgentMessage& message, v1::PayloadVerdict& verdict);

 private:
  absl::Status TakeChunk(Session& session, const v1::PayloadChunk& chunk, std::string_view content,
                         v1::PayloadVerdict& verdict);
  absl::Status TakeSharedChunk(Session& session, const v1::PayloadChunk& chunk, v1::PayloadVerdict& verdict);
  // Takes the first of `chunks` that are whole payloads with one write, as many as are together as large as one chunk
  // may be. Returns how many.
  absl::StatusOr<size_t> TakeWhole(Session& session, std::span<const v1::PayloadChunk* const> chunks,
                                   v1::PayloadVerdict& verdict);

  const std::unique_ptr<AgentMemory> memory_;
  const uint32_t max_chunk_bytes_;
  Metrics* const metrics_;
};

}  // namespace msprobe::server
