#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "agent/capture/faults.h"
#include "agent/capture/fragments/structure_ids.h"
#include "agent/capture/reading/memory_reader.h"
#include "agent/capture/reading/tensor_source.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// Sends the scalars that a program logs: one fragment of RecordKind::kScalars a call. A number travels as a double. A
// tensor is read as every other one is, so nobody waits for its device; its value is the largest of its one element.
//
// Thread-safe. Throws nothing: what fails is a fault of the step.
class ScalarLog {
 public:
  struct Scalar {
    std::string_view name;
    double value = 0;
    // Reads a tensor of one element, as its TensorSource does. Null: `value` counts.
    std::function<TensorReading(const MemoryReader& memory)> read;
  };

  // All outlive this.
  ScalarLog(core::Session* session, TensorSource* source, Faults* faults);

  void Log(uint32_t step, std::span<const Scalar> scalars);

 private:
  core::Session& session_;
  TensorSource& source_;
  Faults& faults_;
  const MemoryReader memory_;  // reads the whole of a tensor, and statistics, whatever the configuration captures
  StructureIds structures_;
};

}  // namespace msprobe::capture
