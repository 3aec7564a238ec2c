#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/core/responses/response_detector.h"
#include "msprobe/v1/ingest.pb.h"
#include "msprobe/v1/query.pb.h"
#include "server/format/storage/storage.pb.h"

namespace msprobe::server {

// Hears from a session: the transport that is attached to it. Calls come from any thread, without the session's lock,
// and must not block.
class SessionListener {
 public:
  virtual ~SessionListener() = default;
  virtual void OnDurable(uint64_t durable_through) = 0;
  // Received batches are not durable, and nobody knows when they will be. The agent must send them again.
  virtual void OnSyncFailed(const absl::Status& status) = 0;
  // Payloads that this session still owed have come from another session.
  virtual void OnStored(const std::vector<std::string>& hashes) = 0;
  virtual void OnStepExported(const v1::StepExported& exported) = 0;
  // A command for the process.
  virtual void OnControl(const v1::ControlCommand&) {}
  virtual void OnDumpRoom(const v1::DumpRoom&) {}
  virtual void OnAlarm(const v1::AlarmRaised&) {}
  // Another transport took the session over. The status is Aborted, with words for whoever still listens to this one.
  virtual void OnReplaced(const absl::Status& status) = 0;
};

// One value of a scalar.
struct ScalarPoint {
  std::string series;
  uint32_t step = 0;
  double value = 0;
};

// A token of a language model's reply.
struct ResponseToken {
  std::string request;
  uint32_t step = 0;
  std::optional<core::SampledToken> token;  // absent: the reply has ended
};

// Hears from all sessions, once the news is durable: the rest of the server. Calls come from any thread, without locks.
class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  // Records of a step have come that has not ended, and may lack payloads. Called for every batch: it must be cheap.
  virtual void OnRecords(const storage::SessionRow& /*session*/, uint32_t /*step*/) {}
  // COMPLETE or INCOMPLETE. INCOMPLETE may be followed by COMPLETE when a lost session comes back.
  virtual void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) = 0;
  // Marker.ExportOpenStep.
  virtual void OnExportRequested(const std::string& session, uint32_t step) = 0;
  // A stream has opened that still waits to hear that this step is exported.
  virtual void OnExportAwaited(const std::string& session, uint32_t step) = 0;
  virtual void OnRankKnown(const std::string& session, const v1::Rank& from, const v1::Rank& to) = 0;
  // Points that a program logged, in order.
  virtual void OnScalars(const std::string& session, const std::vector<ScalarPoint>& points) = 0;
  // It has ended or is lost. May be called again; a lost one may come back.
  virtual void OnSessionClosed(const storage::SessionRow& /*session*/) {}
  // Tokens of replies, in order. They are stored nowhere.
  virtual void OnResponses(const std::string& /*session*/, const std::vector<ResponseToken>& /*tokens*/) {}
};

}  // namespace msprobe::server
