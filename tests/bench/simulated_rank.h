#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/core/session.h"
#include "tests/bench/recorded_step.h"

namespace msprobe::bench {

// What is sent, by every rank alike.
struct Load {
  uint64_t first_records = 0;      // of the step, so many; 0: all
  bool varying_shapes = false;     // the token dimension changes from step to step
  size_t payload_bytes = 0;        // of each payload; 0: none
  uint64_t payload_every = 8;      // a payload to so many tensors
  bool repeated_payloads = false;  // the same bytes each time; else new ones
  int64_t token_dimension = 8;     // a dimension of this size is the tokens'
};

// One rank of a job that computes nothing: the fragments of a recorded step again and again, with other numbers, in a
// session of the real agent.
// Threads: EmitStep from one; the rest from any.
class SimulatedRank {
 public:
  // `step` outlives this.
  static absl::StatusOr<std::unique_ptr<SimulatedRank>> Open(const RecordedStep* step, const Load& load,
                                                             const core::SessionOptions& options);

  // Gives the tensor records of the step.
  uint64_t EmitStep(uint32_t step);
  core::Session& session() { return *session_; }

 private:
  struct Prepared {
    core::StructureId structure = 0;
    core::StackId stack = 0;
    core::ParentId parent = 0;
    std::vector<core::Leaf> leaves;
    std::vector<std::vector<int64_t>> shapes;
    std::vector<std::string_view> strings;
    std::unique_ptr<bool[]> booleans;
  };

  SimulatedRank(const RecordedStep* step, const Load& load, std::unique_ptr<core::Session> session, uint64_t seed);
  void Number(core::Leaf* leaf);
  void AddPayload(core::Leaf* leaf);
  double Draw();

  const RecordedStep* const step_;
  const Load load_;
  const std::unique_ptr<core::Session> session_;
  uint64_t state_;
  uint64_t leaves_seen_ = 0;
  std::vector<Prepared> prepared_;
  std::vector<std::byte> content_;
};

}  // namespace msprobe::bench
