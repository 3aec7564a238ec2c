#pragma once

#include "agent/capture/reading/remembered_statistics.h"
#include "agent/capture/reading/tensor_source.h"
#include "agent/core/config/config.h"
#include "agent/mindspore/host_tensor.h"

namespace msprobe::capture {

inline TensorRef RefTo(const HostTensor& tensor) { return {&tensor}; }

// The type of MindSpore's tensors in dump.json (TensorReading::type).
inline constexpr std::string_view kMindsporeTensorType = "mindspore.Tensor";

// The TensorSource over MindSpore. A TensorRef points at a HostTensor.
//
// Everything is read before Read returns: PyNative runs ahead of Python, and operators that work in place write the
// memory of tensors that were read before. The numbers of parameters are remembered (RememberedStatistics), by where
// their memory lies: MindSpore does not tell when that is freed, and bytes that nobody has written have the same
// numbers whoever owns them.
//
// The checksum of bfloat16 is that of the same numbers as float32, as in mindstudio-probe's dumps of MindSpore.
//
// Threads: any; needs no GIL.
class MindsporeSource final : public TensorSource {
 public:
  explicit MindsporeSource(core::Reuse reuse);

  std::string_view framework() const override { return "mindspore"; }
  TensorReading Read(TensorRef tensor, bool save, const MemoryReader& memory) override;
  std::vector<double> Sample(TensorRef tensor, size_t most) override;
  GradientReading ReadGradient(TensorRef tensor, const core::GradProbeConfig& probe,
                               const MemoryReader& memory) override;
  bool BeginCall(core::RecordKind) override { return false; }
  void Flush() override {}
  void EndStep() override { remembered_.EndStep(); }
  Counts counts() const override;

 private:
  RememberedStatistics remembered_;
};

}  // namespace msprobe::capture
