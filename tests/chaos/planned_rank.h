#pragma once

#include <cstdint>
#include <string>

#include "agent/core/session.h"

namespace msprobe::server {

// For tests: a rank that computes nothing and emits, through a session of the real agent, what is decided by rank and
// step alone: calls Torch.op.N with one tensor each, of which every kPayloadEvery-th has content of its own.
// PlannedCheck knows the same.
// Threads: one at a time.
class PlannedRank {
 public:
  static constexpr uint32_t kPayloadEvery = 50;

  // The session outlives this.
  PlannedRank(core::Session* session, uint32_t rank, uint32_t records_a_step);

  // One step and its end.
  void EmitStep(uint32_t step);

  // The maximum of a record's tensor: a float holds it exactly. Ranks below 16.
  static int Value(uint32_t rank, uint32_t step, uint32_t record);
  // The bytes of its tensor; empty: none are saved.
  static std::string Content(uint32_t rank, uint32_t step, uint32_t record);

 private:
  core::Session* const session_;
  const uint32_t rank_;
  const uint32_t records_;
  const core::StructureId structure_;
};

}  // namespace msprobe::server
