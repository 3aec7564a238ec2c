#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "agent/capture/faults.h"
#include "agent/capture/fragments/structure_ids.h"
#include "agent/capture/reading/memory_reader.h"
#include "agent/capture/reading/tensor_source.h"
#include "agent/core/config/config.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// Task grad_probe: sends the signs and the numbers of gradients, one record of RecordKind::kParametersGrad for each,
// "Parameter.{name}.parameters_grad.0", with the fields
//   grad       the gradient, without its bytes
//   signs      at levels L1 and L2: one bit an element (stats::WriteSigns), as a tensor of uint8
//   intervals  at level L2: how many elements lie in each interval, then how many are 0, as a tensor of int64
//
// Everything is read before Look returns, as the program may write a gradient at once: host memory by the caller and
// the threads that help it (ReadingThreads), a device's in the order of its stream.
//
// Thread-safe. Throws nothing: what fails is a fault of the step.
class GradientProbe {
 public:
  struct Gradient {
    std::string_view parameter;  // as named_parameters has it
    TensorRef tensor;
  };

  // All outlive this.
  GradientProbe(const core::GradProbeConfig* config, core::Session* session, TensorSource* source,
                const MemoryReader* memory, Faults* faults);

  void Look(uint32_t step, std::span<const Gradient> gradients);

 private:
  void Emit(uint32_t step, uint64_t place, const Gradient& gradient);

  const core::GradProbeConfig& config_;
  core::Session& session_;
  TensorSource& source_;
  const MemoryReader& memory_;
  Faults& faults_;
  StructureIds structures_;
};

}  // namespace msprobe::capture
