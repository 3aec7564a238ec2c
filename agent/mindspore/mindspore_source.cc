#include "agent/mindspore/mindspore_source.h"

#include <memory>
#include <vector>

#include "agent/capture/reading/tensor_sample.h"
#include "agent/stats/checksum.h"

namespace msprobe::capture {
namespace {

using stats::DType;

// The checksum of the same numbers as float32. A bfloat16 is the upper half of one.
uint32_t WidenedCrc32(const stats::TensorView& view) {
  std::vector<uint16_t> halves(static_cast<size_t>(view.element_count()));
  stats::CopyContiguous(view, halves.data());
  std::vector<uint32_t> words(halves.begin(), halves.end());
  for (uint32_t& word : words) word <<= 16;
  const int64_t sizes[] = {static_cast<int64_t>(words.size())}, strides[] = {1};
  return stats::Crc32({.data = words.data(), .dtype = DType::kFloat32, .sizes = sizes, .strides = strides});
}

RememberedStatistics::Memory MemoryOf(const stats::TensorView& view) {
  const auto bytes = static_cast<size_t>(view.element_count()) * stats::ElementSize(view.dtype);
  return {.id = view.data, .bytes = {static_cast<const std::byte*>(view.data), bytes}, .lasts = true};
}

stats::TensorView ViewOf(const HostTensor& tensor) {
  return {.data = tensor.data, .dtype = tensor.dtype, .sizes = tensor.sizes, .strides = tensor.strides};
}

bool CanBeRead(const HostTensor& tensor) {
  return tensor.dtype != DType::kOther && (tensor.data != nullptr || ViewOf(tensor).element_count() == 0);
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

MindsporeSource::MindsporeSource(core::Reuse reuse)
    : remembered_(reuse == core::Reuse::kOff ? nullptr : stats::WriteWatch::Create()) {}

TensorSource::Counts MindsporeSource::counts() const {
  const RememberedStatistics::Counts remembered = remembered_.counts();
  return {.recalled = remembered.recalled, .wrong = remembered.wrong};
}

TensorReading MindsporeSource::Read(TensorRef ref, bool save, const MemoryReader& memory) {
  const auto& tensor = *static_cast<const HostTensor*>(ref.tensor);
  TensorReading reading = Described(tensor);
  if (CanBeRead(tensor)) {
    memory.Read(ViewOf(tensor), save, reading, [&](const stats::TensorView& part, core::Leaf& leaf) {
      std::shared_ptr<const Spread> spread;
      const auto measure = [&](core::Leaf& read) {
        spread = memory.Measure(part, read);
        if (tensor.dtype == DType::kBFloat16 && read.crc32.has_value()) read.crc32 = WidenedCrc32(part);
      };
      if (tensor.is_parameter && part.is_contiguous() && !memory.gathers_spread() && !memory.replays()) {
        remembered_.Read(MemoryOf(part), part, memory.session(), leaf, measure);
      } else {
        measure(leaf);
      }
      return spread;
    });
  }
  NameDType(tensor, reading);
  return reading;
}

std::vector<double> MindsporeSource::Sample(TensorRef ref, size_t most) {
  const auto& tensor = *static_cast<const HostTensor*>(ref.tensor);
  const stats::TensorView view = ViewOf(tensor);
  return CanBeRead(tensor) && view.is_contiguous() ? SampleDense(view, most) : std::vector<double>{};
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
