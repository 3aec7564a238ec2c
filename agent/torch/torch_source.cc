#include "agent/torch/torch_source.h"

#include <torch/csrc/autograd/function.h>

#include "agent/torch/autograd/open_backward.h"
#include "agent/torch/autograd/recompute.h"
#include "agent/torch/device/device_reader.h"
#include "agent/torch/tensor/identity.h"

namespace msprobe::capture {

TensorReading TorchSource::Read(TensorRef tensor, bool save, const MemoryReader& memory) {
  return reader_.Read(*static_cast<const at::Tensor*>(tensor.tensor), save, memory);
}

void TorchSource::Expect(std::span<const TensorRef> parameters) {
  for (const TensorRef& each : parameters) reader_.Expect(*static_cast<const at::Tensor*>(each.tensor));
}

GradientReading TorchSource::ReadGradient(TensorRef tensor, const core::GradProbeConfig& probe,
                                          const MemoryReader& memory) {
  return reader_.ReadGradient(*static_cast<const at::Tensor*>(tensor.tensor), probe, memory);
}

TensorIdentity TorchSource::Identify(TensorRef tensor) {
  return IdentityOf(*static_cast<const at::Tensor*>(tensor.tensor));
}

// A call inside a node of a backward pass stands behind everything that began after the node.
bool TorchSource::BeginCall(core::RecordKind kind) {
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return false;
  OpenBackward::EndBehind(node->sequence_nr());
  return IsRecompute(*node, kind == core::RecordKind::kModule);
}

void TorchSource::Flush() { DeviceReader::FlushAll(); }

TensorSource::Counts TorchSource::counts() const {
  const RememberedStatistics::Counts remembered = reader_.remembered();
  return {.recalled = remembered.recalled, .wrong = remembered.wrong};
}

}  // namespace msprobe::capture
