#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/ingest/session/session.h"

namespace msprobe::server {

// For tests: a session without a store. It notes what it is given.
class FakeSession : public Session {
 public:
  v1::Welcome welcome() const override { return {}; }
  absl::StatusOr<v1::PayloadVerdict> Apply(const v1::Batch&) override { return v1::PayloadVerdict(); }
  // Refuses the payload `bad` with `refusal`.
  absl::StatusOr<v1::PayloadVerdict> AddPayload(const v1::PayloadChunk& chunk, std::string_view content) override {
    if (chunk.hash() == bad) return refusal;
    chunks.push_back(chunk.hash() + "=" + std::string(content));
    v1::PayloadVerdict verdict;
    if (chunk.last()) verdict.add_stored(chunk.hash());
    return verdict;
  }
  // Takes those before `bad`.
  absl::StatusOr<size_t> AddWhole(std::span<const WholePayload> payloads, v1::PayloadVerdict& verdict) override {
    size_t taken = 0;
    for (; taken < payloads.size() && payloads[taken].hash != bad; ++taken) {
      wholes.push_back(std::string(payloads[taken].hash) + "=" + std::string(payloads[taken].content));
      verdict.add_stored(std::string(payloads[taken].hash));
    }
    writes += taken > 0;
    return taken;
  }
  uint64_t received_through() const override { return received; }
  uint64_t durable_through() const override { return durable; }
  absl::Status AwaitDurable(absl::Duration) override { return absl::OkStatus(); }

  uint64_t received = 0, durable = 0;
  std::string bad;
  absl::Status refusal = absl::DataLossError("its hash is another");
  std::vector<std::string> chunks, wholes;  // "hash=content", by AddPayload and by AddWhole
  int writes = 0;                           // of AddWhole
};

}  // namespace msprobe::server
