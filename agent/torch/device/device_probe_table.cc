#include "agent/torch/device/device_probe_table.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "agent/capture/reading/leaf_numbers.h"
#include "agent/stats/checksum.h"
#include "agent/torch/device/device_pieces.h"
#include "agent/torch/device/device_slab.h"
#include "agent/torch/device/device_text.h"
#include "agent/torch/device/stream_reader.h"
#include "agent/torch/tensor/quiet_dispatch.h"
#include "agent/torch/tensor/tensor_reader.h"
#include "agent/torch/torch_versions.h"

namespace msprobe::capture {
namespace {

size_t SlotBytes(int64_t probes) { return static_cast<size_t>(ProbeTable::SlotOf(probes)) * sizeof(int64_t); }

at::Tensor Memory(c10::Device device, int64_t probes, size_t bytes) {
  const QuietDispatch quiet;
  const c10::DeviceGuard on_device(device);
  const auto size = static_cast<int64_t>(Aligned(SlotBytes(probes)) + Aligned(bytes));
  at::Tensor memory = at::empty({size}, at::TensorOptions(c10::kByte).device(device));
  memory.narrow(0, 0, static_cast<int64_t>(Aligned(SlotBytes(probes)))).zero_();
  return memory;
}

bool IsWide(c10::ScalarType type) {
  return type == c10::kDouble || type == c10::kLong || type == c10::kUInt64 || type == c10::ScalarType::ComplexDouble;
}

}  // namespace

DeviceProbeTable::DeviceProbeTable(std::shared_ptr<Recorder> recorder, c10::Device device, int64_t probes,
                                   size_t memory_bytes)
    : DeviceProbeTable(std::move(recorder), Memory(device, probes, memory_bytes), probes) {}

DeviceProbeTable::DeviceProbeTable(std::shared_ptr<Recorder> recorder, const at::Tensor& memory, int64_t probes)
    : ProbeTable(std::move(recorder), probes,
                 memory.narrow(0, 0, static_cast<int64_t>(SlotBytes(probes))).view(c10::kLong)),
      memory_(memory),
      device_(memory.device()),
      statistics_(memory.device()),
      keep_(static_cast<size_t>(probes)),
      by_probe_(static_cast<size_t>(probes)),
      used_(Aligned(SlotBytes(probes))),
      runs_before_(static_cast<size_t>(probes)),
      runs_(static_cast<size_t>(probes)) {
  Switch(true);
}

at::Tensor DeviceProbeTable::View(size_t offset, c10::ScalarType type, c10::IntArrayRef sizes) const {
  const int64_t bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
  return memory_.narrow(0, static_cast<int64_t>(offset), bytes).view(type).view(sizes);
}

void DeviceProbeTable::Run(const at::Tensor& x, const at::Tensor& slots, int64_t probe) noexcept {
  try {
    if (!InRange(probe) || x.device() != device_ || x.layout() != c10::kStrided) return;
    const QuietDispatch quiet;
    const c10::DeviceGuard on_device(device_);
    const bool captured = IsCapturing(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    absl::MutexLock lock(&mu_);
    if (!on_ && !captured) return;
    const int64_t number = FormOf(x, probe, captured);
    const Form& form = forms_[static_cast<size_t>(number) - 1];
    if (form.offset.has_value() && x.numel() > 0) Launch(x, form);
    slots.select(0, SlotOf(probe) + 1).fill_(number);
    slots.select(0, SlotOf(probe)).add_(slots.select(0, 0));
  } catch (const std::exception& error) {
    Fault(probe, error.what());
  }
}

int64_t DeviceProbeTable::FormOf(const at::Tensor& x, int64_t probe, bool captured) {
  const auto index = static_cast<size_t>(probe);
  const bool keep = keep_[index] != 0;
  for (const int64_t number : by_probe_[index]) {
    Form& form = forms_[static_cast<size_t>(number) - 1];
    if (form.type != x.scalar_type() || x.sizes() != form.sizes || form.keep != keep || form.conjugate != x.is_conj() ||
        form.negative != x.is_neg()) {
      continue;
    }
    form.captured = form.captured || captured;
    return number;
  }
  Form form;
  form.probe = probe;
  form.type = x.scalar_type();
  form.sizes.assign(x.sizes().begin(), x.sizes().end());
  form.keep = keep;
  form.conjugate = x.is_conj();
  form.negative = x.is_neg();
  form.captured = captured;
  Place(x, form);
  forms_.push_back(std::move(form));
  by_probe_[index].push_back(static_cast<int64_t>(forms_.size()));
  return static_cast<int64_t>(forms_.size());
}

void DeviceProbeTable::Place(const at::Tensor& x, Form& form) {
  const auto size = static_cast<size_t>(memory_.numel());
  size_t bytes = static_cast<size_t>(x.numel()) * x.element_size();
  const bool reducible = ReducesOnDevice(form.type) && !form.negative;
  const bool raw = form.keep || !reducible || (bytes <= StreamReader::kLargestRaw && used_ + bytes <= size / 2) ||
                   recorder().config().summary_mode != core::SummaryMode::kStatistics;
  if (!raw || (reducible && used_ + bytes > size)) {
    DeviceStatistics::ForEachPiece(x, [&](const at::Tensor& piece) { form.piece_elements.push_back(piece.numel()); });
    bytes = form.piece_elements.size() * kRowStride;
  }
  if (used_ + bytes > size) {
    form.piece_elements.clear();
    Fault(form.probe, "no room in the table for this tensor, which stands without numbers; memory_ceiling bounds it");
    return;
  }
  form.offset = used_;
  used_ = form.end = Aligned(used_ + bytes);
}

void DeviceProbeTable::Launch(const at::Tensor& x, const Form& form) {
  if (form.piece_elements.empty()) {
    at::Tensor plain = x;
    if (form.conjugate || form.negative) {
      plain = x.as_strided(x.sizes(), x.strides(), x.storage_offset());
      plain._set_conj(false);
      plain._set_neg(false);
    }
    View(*form.offset, form.type, form.sizes).copy_(plain, true);
    return;
  }
  size_t row = *form.offset;
  DeviceStatistics::ForEachPiece(x, [&](const at::Tensor& piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    statistics_.Launch(piece, View(row, c10::kByte, {static_cast<int64_t>(sizeof(DeviceRow))}));
    row += kRowStride;
  });
}

void DeviceProbeTable::Switch(bool on) {
  const QuietDispatch quiet;
  const c10::DeviceGuard on_device(device_);
  slots().select(0, 0).fill_(on ? 1 : 0);
  absl::MutexLock lock(&mu_);
  on_ = on;
}

void DeviceProbeTable::KeepBytes(int64_t probe, bool keep) {
  absl::MutexLock lock(&mu_);
  if (InRange(probe)) keep_[static_cast<size_t>(probe)] = keep ? 1 : 0;
}

int64_t DeviceProbeTable::Gather() {
  const QuietDispatch quiet;
  const c10::DeviceGuard on_device(device_);
  absl::MutexLock lock(&mu_);
  if (!host_.defined() || static_cast<size_t>(host_.numel()) < used_) {
    host_ = PinnedMemory(std::min(used_ * 2, static_cast<size_t>(memory_.numel())));
  }
  // Graphs may have been replayed on streams of their own.
  c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  const auto bytes = static_cast<int64_t>(used_);
  host_.narrow(0, 0, bytes).copy_(memory_.narrow(0, 0, bytes));
  const auto* const cells = static_cast<const int64_t*>(host_.const_data_ptr());
  runs_before_ = runs_;
  int64_t ran = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    runs_[i] = cells[SlotOf(static_cast<int64_t>(i))];
    if (runs_[i] != runs_before_[i]) ++ran;
  }
  return ran;
}

void DeviceProbeTable::Forget() {
  absl::MutexLock lock(&mu_);
  runs_before_ = runs_;
  while (!forms_.empty() && !forms_.back().captured) {
    by_probe_[static_cast<size_t>(forms_.back().probe)].pop_back();
    forms_.pop_back();
  }
  used_ = Aligned(SlotBytes(probes()));
  for (const Form& form : forms_) used_ = std::max(used_, form.end);
}

ProbeTable::Found DeviceProbeTable::Take(int64_t probe) {
  absl::MutexLock lock(&mu_);
  const auto index = static_cast<size_t>(probe);
  if (!InRange(probe) || !host_.defined()) return {};
  Found found;
  found.runs = static_cast<uint64_t>(runs_[index] - runs_before_[index]);
  if (found.runs == 0) return {};
  const int64_t number = static_cast<const int64_t*>(host_.const_data_ptr())[SlotOf(probe) + 1];
  found.reading.type = kTensorType;
  if (number < 1 || number > static_cast<int64_t>(forms_.size())) return found;
  found.reading = Read(forms_[static_cast<size_t>(number) - 1]);
  return found;
}

TensorReading DeviceProbeTable::Read(const Form& form) {
  TensorReading reading;
  reading.type = kTensorType;
  reading.dtype = WireDType(form.type);
  if (reading.dtype == static_cast<uint8_t>(stats::DType::kOther)) {
    reading.dtype_name = "torch." + std::string(c10::toString(form.type));
  }
  reading.device = DeviceText(device_);
  reading.shape.assign(form.sizes.begin(), form.sizes.end());
  reading.leaf.is_wide = recorder().config().precision_high || IsWide(form.type);
  if (!form.offset.has_value()) return reading;
  const std::byte* const at = static_cast<const std::byte*>(host_.const_data_ptr()) + *form.offset;
  if (!form.piece_elements.empty()) {
    SetNumbers(CombineRows(at, form.piece_elements, static_cast<stats::DType>(reading.dtype), 1), reading.leaf);
    return reading;
  }
  std::vector<int64_t> strides(form.sizes.size(), 1);
  for (size_t dim = strides.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * std::max<int64_t>(form.sizes[dim], 1);
  const stats::TensorView view{.data = at,
                               .dtype = static_cast<stats::DType>(reading.dtype),
                               .sizes = form.sizes,
                               .strides = strides,
                               .conjugate = form.conjugate,
                               .negative = form.negative};
  if (view.element_count() > 0) ReadNumbers(view, recorder().config().summary_mode, form.sizes.empty(), reading.leaf);
  if (form.keep) {
    const size_t bytes = static_cast<size_t>(view.element_count()) * stats::ElementSize(view.dtype);
    reading.leaf.payload = recorder().session().AllocatePayload(bytes);
    if (reading.leaf.payload != nullptr && bytes > 0) stats::CopyContiguous(view, reading.leaf.payload->bytes().data());
  }
  return reading;
}

}  // namespace msprobe::capture
