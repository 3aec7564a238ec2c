#pragma once

#include <ATen/core/Tensor.h>

#include "agent/capture/reading/tensor_source.h"
#include "agent/core/config/config.h"
#include "agent/torch/tensor/tensor_reader.h"

namespace msprobe::capture {

inline TensorRef RefTo(const at::Tensor& tensor) { return {&tensor}; }

// The TensorSource over torch. A TensorRef points at an at::Tensor.
//
// Threads: any; needs no GIL.
class TorchSource final : public TensorSource {
 public:
  explicit TorchSource(core::Reuse reuse) : reader_(reuse) {}

  std::string_view framework() const override { return "pytorch"; }
  TensorReading Read(TensorRef tensor, bool save, const MemoryReader& memory) override;
  void Expect(std::span<const TensorRef> parameters) override;
  std::vector<double> Sample(TensorRef tensor, size_t most) override {
    return reader_.Sample(*static_cast<const at::Tensor*>(tensor.tensor), most);
  }
  GradientReading ReadGradient(TensorRef tensor, const core::GradProbeConfig& probe,
                               const MemoryReader& memory) override;
  TensorIdentity Identify(TensorRef tensor) override;
  bool BeginCall(core::RecordKind kind) override;
  void Flush() override;
  void EndStep() override { reader_.EndStep(); }
  Counts counts() const override;

 private:
  const TensorReader reader_;
};

}  // namespace msprobe::capture
