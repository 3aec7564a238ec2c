#include "agent/mindspore/mindspore_source.h"

#include <memory>
#include <vector>

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

}  // namespace

MindsporeSource::MindsporeSource(core::Reuse reuse)
    : remembered_(reuse == core::Reuse::kOff ? nullptr : stats::WriteWatch::Create()) {}

TensorSource::Counts MindsporeSource::counts() const {
  const RememberedStatistics::Counts remembered = remembered_.counts();
  return {.recalled = remembered.recalled, .wrong = remembered.wrong};
}

TensorReading MindsporeSource::Read(TensorRef ref, bool save, const MemoryReader& memory) {
  const auto& tensor = *static_cast<const HostTensor*>(ref.tensor);
  TensorReading reading;
  reading.type = kMindsporeTensorType;
  reading.device = "cpu";
  reading.dtype = static_cast<uint8_t>(tensor.dtype);
  const stats::TensorView view{
      .data = tensor.data, .dtype = tensor.dtype, .sizes = tensor.sizes, .strides = tensor.strides};
  if (tensor.dtype == DType::kOther || (tensor.data == nullptr && view.element_count() > 0)) {
    reading.shape.assign(tensor.sizes.begin(), tensor.sizes.end());
  } else {
    memory.Read(view, save, reading, [&](const stats::TensorView& part, core::Leaf& leaf) {
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
  // The wire's own names are torch's.
  reading.dtype = static_cast<uint8_t>(DType::kOther);
  reading.dtype_name = tensor.dtype_name;
  return reading;
}

}  // namespace msprobe::capture
