#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/ingest.pb.h"
#include "msprobe/v1/query.pb.h"
#include "server/ingest/session/session.h"
#include "server/ingest/session/session_context.h"
#include "server/ingest/session/session_state.h"
#include "server/store/change_set.h"

namespace msprobe::server {

// Takes the payloads that a session has announced. Each call writes what it takes, then changes the session's state.
//
// Threads: one at a time.
class PayloadArrivals {
 public:
  // Both are borrowed.
  PayloadArrivals(const SessionContext* context, SessionState* state) : context_(*context), state_(*state) {}

  // The payloads and steps that a call has completed.
  struct Arrived {
    std::vector<std::string> hashes;                                    // of payloads
    std::vector<std::pair<uint32_t, v1::StepSummary::State>> finished;  // steps that lacked nothing else
  };

  // As Session::AddPayload. A payload that was stored before stands in the verdict, and not in what has arrived.
  absl::StatusOr<Arrived> AddChunk(const v1::PayloadChunk& chunk, std::string_view content,
                                   v1::PayloadVerdict& verdict);
  // As Session::AddWhole. `taken`: how many of the payloads, those that were stored before included.
  absl::StatusOr<Arrived> AddWhole(std::span<const Session::WholePayload> payloads, v1::PayloadVerdict& verdict,
                                   size_t& taken);
  // The payload came from another session. Does nothing where this one does not wait for it.
  absl::StatusOr<Arrived> Resolve(const std::string& hash);

 private:
  storage::PayloadRow RowOf(const PayloadUpload& upload) const;
  // Adds what whole payloads change, and writes it.
  absl::StatusOr<Arrived> Finish(std::vector<std::string> hashes, ChangeSet changes);
  // Removes the content of a payload that turned out to have another hash. Returns DataLoss.
  absl::Status Undo(const std::string& hash, const PayloadUpload& upload, uint64_t size);

  const SessionContext& context_;
  SessionState& state_;
};

}  // namespace msprobe::server
