#include "agent/mindspore/mindspore_source.h"

#include <vector>

#include "agent/capture/reading/tensor_sample.h"
#include "agent/stats/checksum.h"

namespace msprobe::capture {
namespace {

using stats::DType;

// The checksum of the same numbers as float32. A bfloat16 is the upper half of one.
uint32_t WidenedCrc32(const HostTensor& tensor, const stats::TensorView& view, const MemoryReader& memory) {
  std::vector<uint16_t> halves(static_cast<size_t>(view.element_count()));
  stats::CopyContiguous(view, halves.data());
  std::vector<uint32_t> words(halves.begin(), halves.end());
  for (uint32_t& word : words) word <<= 16;
  std::vector<int64_t> strides(tensor.sizes.size(), 1);
  for (size_t i = strides.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * tensor.sizes[i - 1];
  TensorReading widened;
  widened.dtype = static_cast<uint8_t>(DType::kFloat32);
  memory.Read({.data = words.data(), .dtype = DType::kFloat32, .sizes = tensor.sizes, .strides = strides}, false,
              widened);
  return widened.leaf.crc32.value_or(0);
}

stats::TensorView ViewOf(const HostTensor& tensor) {
  return {.data = tensor.data, .dtype = tensor.dtype, .sizes = tensor.sizes, .strides = tensor.strides};
}

bool CanBeRead(const HostTensor& tensor) {
  return tensor.dtype != DType::kOther && (tensor.data != nullptr || ViewOf(tensor).element_count() == 0);
}

// Whether its elements lie side by side, in order.
bool IsDense(const HostTensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.sizes.size(); i > 0; --i) {
    if (tensor.sizes[i - 1] != 1 && tensor.strides[i - 1] != expected) return false;
    expected *= tensor.sizes[i - 1];
  }
  return true;
}

// All but the numbers.
TensorReading Described(const HostTensor& tensor) {
  TensorReading reading;
  reading.type = kMindsporeTensorType;
  reading.device = "cpu";
  reading.dtype = static_cast<uint8_t>(tensor.dtype);
  reading.shape.assign(tensor.sizes.begin(), tensor.sizes.end());
  return reading;
}

// The wire's own names are torch's.
void NameDType(const HostTensor& tensor, TensorReading& reading) {
  reading.dtype = static_cast<uint8_t>(DType::kOther);
  reading.dtype_name = tensor.dtype_name;
}

}  // namespace

TensorReading MindsporeSource::Read(TensorRef ref, bool save, const MemoryReader& memory) {
  const auto& tensor = *static_cast<const HostTensor*>(ref.tensor);
  TensorReading reading = Described(tensor);
  if (CanBeRead(tensor)) {
    const stats::TensorView view = ViewOf(tensor);
    memory.Read(view, save, reading);
    if (tensor.dtype == DType::kBFloat16 && reading.leaf.crc32.has_value()) {
      reading.leaf.crc32 = WidenedCrc32(tensor, view, memory);
    }
  }
  NameDType(tensor, reading);
  return reading;
}

std::vector<double> MindsporeSource::Sample(TensorRef ref, size_t most) {
  const auto& tensor = *static_cast<const HostTensor*>(ref.tensor);
  return CanBeRead(tensor) && IsDense(tensor) ? SampleDense(ViewOf(tensor), most) : std::vector<double>{};
}

GradientReading MindsporeSource::ReadGradient(TensorRef ref, const core::GradProbeConfig& probe,
                                              const MemoryReader& memory) {
  const auto& tensor = *static_cast<const HostTensor*>(ref.tensor);
  GradientReading reading;
  reading.gradient = Described(tensor);
  if (CanBeRead(tensor)) memory.ReadGradient(ViewOf(tensor), probe, reading);
  NameDType(tensor, reading.gradient);
  return reading;
}

}  // namespace msprobe::capture
