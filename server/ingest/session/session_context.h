#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/ingest/session/events.h"
#include "server/metrics/metrics.h"
#include "server/store/store.h"

namespace msprobe::server {

// The parts that all sessions of this server share. Outlives them.
struct SessionContext {
  Store* store = nullptr;
  Metrics* metrics = nullptr;
  SessionObserver* observer = nullptr;                           // may be null
  std::function<void(const std::string& hash)> payload_arrived;  // tells the other sessions
  std::function<absl::Status(uint32_t run)> admit;               // empty: everything; see SessionsOptions
  std::vector<std::string> capabilities;
  std::string version;
  uint32_t max_batch_bytes = 8u << 20;
  uint32_t max_chunk_bytes = 1u << 20;
  size_t max_uploads = 64;  // payloads of one session under way at once
};

}  // namespace msprobe::server
