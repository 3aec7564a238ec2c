#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "agent/core/pool.h"

namespace msprobe::capture {

// The numbers that tell the records of one step apart: the count of a call among the calls of its name, and the place
// of a record among all.
//
// Not thread-safe: the recorder guards it.
class StepNumbers {
 public:
  // Calls of one thread are counted by themselves, from slot * kThreadStride, so that counts do not depend on how
  // threads interleave.
  static constexpr uint32_t kThreadStride = 1'000'000;

  uint32_t NextCount(const std::string& name, uint32_t slot);

  uint64_t NextOrdinal() { return next_ordinal_++; }
  bool has_ordinals() const { return next_ordinal_ > 0; }

  // A gradient of `parameter` was accumulated. The gradients of a module are one record, until its first parameter
  // comes again: then the next one begins, in the forward pass `token`.
  struct Gradient {
    uint32_t count = 0;
    uint32_t token = 0;  // in which the record began
  };
  Gradient NextGradient(const std::string& module, const std::string& parameter, uint32_t token);

  // The place of a saved value. A value that is saved again under its name keeps it.
  uint64_t DebugOrdinal(const std::string& full_name);

  void EndStep();

 private:
  struct GradientRecord {
    uint32_t step = 0;  // of this class; what follows belongs to it
    std::string first_parameter;
    Gradient latest;
  };

  uint32_t step_ = 1;  // counts the steps that ended; no GradientRecord begins with its number
  uint64_t next_ordinal_ = 0;
  std::vector<core::PooledTextMap<uint32_t>> counts_;  // by slot; names of earlier steps stay, with 0
  core::PooledTextMap<GradientRecord> gradients_;      // by module
  absl::flat_hash_map<std::string, uint64_t> debug_ordinals_;
};

}  // namespace msprobe::capture
