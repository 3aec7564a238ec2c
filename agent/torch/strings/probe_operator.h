#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace msprobe::capture {

// The operator by which a traced graph reads tensors, whichever compiler it goes through:
//
//   msprobe::probe(Tensor x, Tensor(a!) slots, int index, int table) -> ()
//
// Its schema says that it writes `slots`. So no compiler leaves it out, moves it or reuses its result for another
// tensor (docs/vllm.md). index: the probe; table: ProbeTable::id(), or a number that no table has, and nothing happens.
// Kernels: CPU, CUDA and PrivateUse1, which neither allocate on a device nor wait; Meta, which does nothing.
//
// Registered when the extension is loaded; calling this keeps the registration linked in.
void EnsureProbeOperator();

// What it does where a table is: ProbeTable::Run.
void RunProbe(const at::Tensor& x, const at::Tensor& slots, int64_t index, int64_t table);

}  // namespace msprobe::capture
