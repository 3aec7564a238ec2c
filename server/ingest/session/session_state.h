#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "server/format/storage/key.h"
#include "server/format/storage/storage.pb.h"
#include "server/ingest/payload/payload_upload.h"
#include "server/ingest/session/session_definitions.h"
#include "server/store/store.h"

namespace msprobe::server {

// A session as far as it is unfinished. It is in memory what the store holds, so it changes only after a write has
// succeeded. BatchStaging and PayloadArrivals change it.
//
// Threads: one at a time.
struct SessionState {
  struct OpenStep {
    storage::StepRow row;
    absl::flat_hash_set<uint64_t> records;  // RecordIdentity of each record that has been counted
  };
  struct PendingPayload {
    storage::PendingRow row;
    std::unique_ptr<PayloadUpload> upload;  // null: no chunk has come on this stream
    bool begun = true;                      // false: none of its chunks can lie in the store
  };

  SessionState(storage::SessionRow row, SessionDefinitions definitions)
      : row(std::move(row)), definitions(std::move(definitions)) {}
  SessionState(SessionState&&) = default;
  SessionState& operator=(SessionState&&) = default;

  // Reads the session's unfinished steps and missing payloads. `reopen`: a lost session is open again, and so are its
  // incomplete steps.
  static absl::StatusOr<SessionState> Load(Store& store, storage::SessionRow row, bool reopen);

  StepKey KeyOf(uint32_t step) const;
  // Whether a payload of this step is still missing.
  bool HasPending(uint32_t step) const;
  // Whether the session has neither ended nor been lost, or has ended with payloads still missing.
  bool unfinished() const { return row.state() == storage::SessionRow::OPEN || !steps.empty(); }

  storage::SessionRow row;
  std::map<uint32_t, OpenStep> steps;                        // a step leaves when it is complete or incomplete
  absl::flat_hash_map<std::string, PendingPayload> pending;  // by hash: announced and not whole
  size_t uploads = 0;                                        // of `pending`, those under way
  SessionDefinitions definitions;
  uint32_t scalar_rows = 0;              // batches whose scalars are not in tiles yet
  absl::flat_hash_set<uint64_t> series;  // whose names are stored; after a restart of the server they are again
};

}  // namespace msprobe::server
