#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/format/storage/block_columns.h"
#include "server/format/storage/key.h"
#include "server/ingest/session/session_state.h"
#include "server/ingest/session/staged_batch.h"
#include "server/metrics/metrics.h"
#include "server/store/store.h"

namespace msprobe::server {

// Checks one batch of a session, gathers what it changes, and makes that the session's state once it is written:
//
//   Stage    checks the batch. InvalidArgument names the definition or item that is malformed.
//   Finish   adds what follows from the batch as a whole: steps that are finished, a new rank, the session's row
//   (the caller writes staged().changes)
//   Adopt    changes the session's state
//
// Nothing of it is real before the write has succeeded; a batch that is given up leaves no trace.
// Threads: one at a time.
class BatchStaging {
 public:
  // Both are borrowed.
  BatchStaging(Store* store, SessionState* state) : store_(*store), state_(*state) {}

  absl::Status Stage(const v1::Batch& batch);
  // Whether Finish deletes or moves steps. If so, hold Steps::tiling_mutex() shared from before Finish until the write.
  bool moves_steps() const;
  absl::Status Finish();
  void Adopt();

  const StagedBatch& staged() const { return staged_; }
  // Counts what the batch held. Call after Adopt.
  void Count(Metrics& metrics) const;

 private:
  absl::Status StageDefinition(const v1::Definition& definition);
  absl::Status StageBlock(const v1::Block& block);
  absl::Status StageScalars(const v1::Block& block);
  // A fragment of kResponse.
  void StageResponse(const v1::Block& block, const StructureSummary& structure, const FragmentColumns& columns);
  absl::Status StagePayload(const v1::PayloadRef& payload, uint32_t step);
  absl::Status StageMarker(const v1::Marker& marker);
  void Discard(uint32_t step);
  absl::Status EndSession(bool clean);
  // The row of a step as the batch so far leaves it. Null where there is none and `create` is false.
  const StructureSummary* FindStructure(uint64_t id) const;
  absl::StatusOr<std::vector<FragmentColumns>> Check(const v1::Block& block) const;
  absl::StatusOr<storage::StepRow*> StagedStep(uint32_t step, bool create);

  // `key`: of the session, with its new rank.
  absl::Status FinishRankMove(const v1::Rank& from, const v1::Rank& to);
  void FinishBlocks(StepKey key);
  void FinishSteps(StepKey key);
  absl::Status FinishScalars();
  void FinishSession();
  bool LacksPayloads(uint32_t step) const;

  Store& store_;
  SessionState& state_;
  StagedBatch staged_;
};

}  // namespace msprobe::server
