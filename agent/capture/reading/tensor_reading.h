#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "agent/capture/edges/producers.h"
#include "agent/capture/edges/tensor_identity.h"
#include "agent/capture/reading/spread.h"
#include "agent/core/record.h"

namespace msprobe::capture {

// The reading of one tensor: everything that a leaf needs. It owns its parts, so it may be emitted later than it
// was read.
struct TensorReading {
  core::Leaf leaf;  // leaf.shape is set when it is emitted
  absl::InlinedVector<int64_t, 6> shape;
  std::string_view type;   // as dump.json shows it: "torch.Tensor"; static storage
  uint8_t dtype = 0;       // msprobe.v1.DType
  std::string dtype_name;  // only for DTYPE_OTHER
  std::string device;
  bool requires_grad = false;
  bool is_sparse = false;
  std::string attributes_json;
  std::shared_ptr<const Spread> spread;  // where the MemoryReader gathers it; null for a device
  // With edges: the tensor when it was read, and the record that it came from (Producers).
  TensorIdentity identity;
  Producers::Sight sight;
};

}  // namespace msprobe::capture
