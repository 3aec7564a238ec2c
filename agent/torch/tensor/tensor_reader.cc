#include "agent/torch/tensor/tensor_reader.h"

#include <ATen/ATen.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "agent/capture/reading/tensor_sample.h"
#include "agent/stats/signs.h"
#include "agent/stats/statistics.h"
#include "agent/torch/device/device_reader.h"
#include "agent/torch/device/device_signs.h"
#include "agent/torch/device/device_text.h"
#include "agent/torch/tensor/quiet_dispatch.h"
#include "agent/torch/tensor/storage_memory.h"
#include "agent/torch/torch_versions.h"

namespace msprobe::capture {
namespace {

using stats::DType;

// Subclasses with a Python __torch_dispatch__ (FakeTensor, DTensor, ...) and functorch wrappers hold no memory of
// their own that could be read without running their code.
bool HasReadableMemory(const at::Tensor& tensor) {
  static constexpr c10::DispatchKeySet kOpaque({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                                c10::DispatchKey::FuncTorchGradWrapper,
                                                c10::DispatchKey::Functionalize});
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return tensor.layout() == c10::kStrided && !impl->key_set().has_any(kOpaque) && impl->has_storage() &&
         !impl->has_symbolic_sizes_strides();
}

// Of torch.func: it stands for one element of a batch, or for a value at one level of differentiation.
bool IsTransformed(const at::Tensor& tensor) {
  static constexpr c10::DispatchKeySet kTransformed(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return tensor.unsafeGetTensorImpl()->key_set().has_any(kTransformed);
}

constexpr char kInsideTransform[] =
    R"({"no_statistics": "inside a transformation of torch.func, whose tensors have no memory of their own"})";

// Whether every element lies inside the storage; FSDP and others free storages of live tensors.
bool FitsStorage(const c10::TensorImpl* impl, std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  int64_t low = impl->storage_offset();
  int64_t high = low;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t reach = (sizes[i] - 1) * strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto item = static_cast<int64_t>(impl->itemsize());
  return low >= 0 && (high + 1) * item <= static_cast<int64_t>(impl->storage().nbytes());
}

// A tensor that may be read ahead.
std::optional<AheadReader::Tensor> AheadOf(const at::Tensor& tensor, const MemoryReader& memory) {
  if (!tensor.device().is_cpu() || !HasReadableMemory(tensor) || tensor.is_nested() || tensor.is_conj()) return {};
  const RememberedStatistics::Memory lies_in = MemoryOf(tensor);
  const auto dtype = static_cast<DType>(WireDType(tensor.scalar_type()));
  AheadReader::Tensor expected{.ahead = {.memory = lies_in, .owner = nullptr},
                               .data = lies_in.bytes.data(),
                               .dtype = dtype,
                               .sizes = {tensor.sizes().begin(), tensor.sizes().end()},
                               .strides = {tensor.strides().begin(), tensor.strides().end()},
                               .mode = memory.mode(),
                               .is_wide = memory.KeepsDoubles(static_cast<uint8_t>(dtype))};
  const stats::TensorView view{.data = expected.data,
                               .dtype = dtype,
                               .sizes = expected.sizes,
                               .strides = expected.strides,
                               .negative = tensor.is_neg()};
  if (lies_in.id == nullptr || !lies_in.is_private || lies_in.changes || lies_in.owner_of == nullptr ||
      tensor.storage_offset() != 0 || tensor.nbytes() != lies_in.bytes.size() || !stats::HasPlainFloats(view)) {
    return {};
  }
  expected.ahead.owner = lies_in.owner_of(lies_in.id);
  return expected;
}

std::string DeviceName(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return "cpu";
  return DeviceText(tensor.device());
}

void ReadDevice(const at::Tensor& tensor, bool save, const MemoryReader& memory, TensorReading& reading) {
  const std::span<const int64_t> sizes(tensor.sizes().data(), tensor.sizes().size());
  const std::span<const int64_t> strides(tensor.strides().data(), tensor.strides().size());
  const int64_t offset = memory.Cut(sizes, strides, reading.shape);
  if (std::find(reading.shape.begin(), reading.shape.end(), 0) != reading.shape.end()) {
    return memory.MeasureNothing(reading.leaf);
  }
  if (tensor.is_quantized() || !FitsStorage(tensor.unsafeGetTensorImpl(), sizes, strides)) return;
  DeviceReader& reader = DeviceReader::Get();
  reader.Read(
      {.tensor = tensor,
       .dtype = static_cast<DType>(reading.dtype),
       .sizes = reading.shape,
       .offset = offset,
       .mode = memory.mode(),
       .save = save && memory.Keeps(static_cast<uint64_t>(c10::multiply_integers(reading.shape)) * tensor.itemsize()),
       .session = &memory.session()},
      reading.leaf);
  if (memory.waits()) reader.Await(reading.leaf);
}

// Of a tensor that is made here of a gradient: whole, with its bytes, without numbers.
TensorReading ReadMade(const at::Tensor& made, const MemoryReader& memory) {
  TensorReading reading;
  reading.type = kTensorType;
  reading.dtype = WireDType(made.scalar_type());
  reading.device = DeviceName(made);
  reading.shape.assign(made.sizes().begin(), made.sizes().end());
  DeviceReader::Get().Read({.tensor = made,
                            .dtype = static_cast<DType>(reading.dtype),
                            .sizes = reading.shape,
                            .save = true,
                            .session = &memory.session()},
                           reading.leaf);
  return reading;
}

void ReadDeviceGradient(const at::Tensor& gradient, const core::GradProbeConfig& probe, const MemoryReader& memory,
                        GradientReading& reading) {
  TensorReading& whole = reading.gradient;
  const c10::Device device = gradient.device();
  if (gradient.numel() == 0 || !c10::impl::hasDeviceGuardImpl(device.type())) return;
  const QuietDispatch quiet;
  const c10::DeviceGuard on_device(device);
  if (IsCapturing(c10::impl::VirtualGuardImpl(device.type()).getStream(device))) return;
  const bool has_signs = stats::HasSigns(static_cast<DType>(whole.dtype));
  const bool checked = has_signs && !probe.signs();
  const at::Tensor read = checked ? gradient.to(c10::kFloat) : gradient;
  DeviceReader::Get().Read({.tensor = read,
                            .dtype = static_cast<DType>(WireDType(read.scalar_type())),
                            .sizes = whole.shape,
                            .mode = checked ? core::SummaryMode::kMd5 : core::SummaryMode::kStatistics,
                            .session = &memory.session()},
                           whole.leaf);
  if (!has_signs || checked) return;
  reading.signs = ReadMade(SignsOnDevice(gradient), memory);
  if (probe.level == core::GradProbeConfig::GradLevel::kL2) {
    reading.counts = ReadMade(IntervalsOnDevice(gradient, probe.bounds), memory);
  }
}

}  // namespace

uint8_t WireDType(c10::ScalarType type) {
  static constexpr struct {
    c10::ScalarType torch;
    DType wire;
  } kTypes[] = {
      {c10::kFloat, DType::kFloat32},
      {c10::kBFloat16, DType::kBFloat16},
      {c10::kHalf, DType::kFloat16},
      {c10::kDouble, DType::kFloat64},
      {c10::kLong, DType::kInt64},
      {c10::kInt, DType::kInt32},
      {c10::kBool, DType::kBool},
      {c10::kByte, DType::kUInt8},
      {c10::kChar, DType::kInt8},
      {c10::kShort, DType::kInt16},
      {c10::kUInt16, DType::kUInt16},
      {c10::kUInt32, DType::kUInt32},
      {c10::kUInt64, DType::kUInt64},
      {c10::ScalarType::ComplexHalf, DType::kComplex32},
      {c10::ScalarType::ComplexFloat, DType::kComplex64},
      {c10::ScalarType::ComplexDouble, DType::kComplex128},
      {c10::kFloat8_e4m3fn, DType::kFloat8E4M3FN},
      {c10::kFloat8_e5m2, DType::kFloat8E5M2},
      {c10::kFloat8_e4m3fnuz, DType::kFloat8E4M3FNUZ},
      {c10::kFloat8_e5m2fnuz, DType::kFloat8E5M2FNUZ},
      {Float8E8M0FNU(), DType::kFloat8E8M0FNU},
      {Float4E2M1FNX2(), DType::kFloat4E2M1FNX2},
      {c10::kQInt8, DType::kQInt8},
      {c10::kQUInt8, DType::kQUInt8},
      {c10::kQInt32, DType::kQInt32},
  };
  for (const auto& entry : kTypes) {
    if (entry.torch == type) return static_cast<uint8_t>(entry.wire);
  }
  return static_cast<uint8_t>(DType::kOther);
}

TensorReader::TensorReader(core::Reuse reuse)
    : remembered_(
          std::make_unique<RememberedStatistics>(reuse == core::Reuse::kOff ? nullptr : stats::WriteWatch::Create())),
      ahead_(remembered_.get()) {}

FreshReadings& TensorReader::fresh() const {
  std::call_once(fresh_made_, [this] { fresh_ = std::make_unique<FreshReadings>(); });
  return *fresh_;
}

bool TensorReader::Describe(const at::Tensor& tensor, const MemoryReader& memory, TensorReading& reading) {
  reading.type = kTensorType;
  reading.dtype = WireDType(tensor.scalar_type());
  if (reading.dtype == static_cast<uint8_t>(DType::kOther)) {
    reading.dtype_name = "torch." + std::string(c10::toString(tensor.scalar_type()));
  }
  reading.device = DeviceName(tensor);
  reading.requires_grad = tensor.requires_grad();
  reading.is_sparse = tensor.layout() != c10::kStrided;
  reading.leaf.is_wide = memory.KeepsDoubles(reading.dtype);
  if (tensor.is_nested()) return false;  // tensors of several shapes: there is no one shape to ask for
  if (!tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    reading.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  }
  if (!HasReadableMemory(tensor) || tensor.device().is_meta()) {
    if (IsTransformed(tensor)) reading.attributes_json = kInsideTransform;
    return false;
  }
  return true;
}

TensorReading TensorReader::Read(const at::Tensor& tensor, bool save, const MemoryReader& memory) const {
  TensorReading reading;
  if (!Describe(tensor, memory, reading)) return reading;
  if (tensor.device().is_cpu()) {
    ReadHost(tensor, save, memory, reading);
  } else {
    ReadDevice(tensor, save, memory, reading);
  }
  return reading;
}

GradientReading TensorReader::ReadGradient(const at::Tensor& gradient, const core::GradProbeConfig& probe,
                                           const MemoryReader& memory) const {
  GradientReading reading;
  TensorReading& whole = reading.gradient;
  if (!Describe(gradient, memory, whole) || gradient.is_quantized()) return reading;
  const c10::TensorImpl* impl = gradient.unsafeGetTensorImpl();
  const std::span<const int64_t> sizes(gradient.sizes().data(), gradient.sizes().size());
  const std::span<const int64_t> strides(gradient.strides().data(), gradient.strides().size());
  if (gradient.numel() > 0 && !FitsStorage(impl, sizes, strides)) return reading;
  if (!gradient.device().is_cpu()) {
    ReadDeviceGradient(gradient, probe, memory, reading);
    return reading;
  }
  const auto* storage = static_cast<const char*>(impl->storage().unsafeGetStorageImpl()->data());
  if (gradient.numel() > 0 && storage == nullptr) return reading;
  const stats::TensorView view{.data = storage + impl->storage_offset() * static_cast<int64_t>(impl->itemsize()),
                               .dtype = static_cast<DType>(whole.dtype),
                               .sizes = sizes,
                               .strides = strides,
                               .conjugate = gradient.is_conj(),
                               .negative = gradient.is_neg()};
  memory.ReadGradient(view, probe, reading);
  return reading;
}

void TensorReader::ReadHost(const at::Tensor& tensor, bool save, const MemoryReader& memory,
                            TensorReading& reading) const {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const std::span<const int64_t> sizes(tensor.sizes().data(), tensor.sizes().size());
  const std::span<const int64_t> strides(tensor.strides().data(), tensor.strides().size());
  const int64_t offset = memory.Cut(sizes, strides, reading.shape);

  stats::TensorView view;
  view.dtype = static_cast<DType>(reading.dtype);
  view.sizes = reading.shape;
  view.strides = strides;
  view.conjugate = tensor.is_conj();
  view.negative = tensor.is_neg();
  const auto* storage = static_cast<const char*>(impl->storage().unsafeGetStorageImpl()->data());
  if (view.element_count() == 0) {
    memory.MeasureNothing(reading.leaf);
    // No bytes, but a part of some memory: mindstudio-probe saves such a tensor, and none that never had memory.
    if (save && storage != nullptr) reading.leaf.payload = memory.CopyBytes(view);
    return;
  }
  if (storage == nullptr || !FitsStorage(impl, sizes, strides)) return;
  view.data = storage + (impl->storage_offset() + offset) * static_cast<int64_t>(impl->itemsize());

  if (tensor.is_quantized()) {
    const auto& quantizer = static_cast<at::QTensorImpl*>(tensor.unsafeGetTensorImpl())->quantizer();
    if (quantizer->qscheme() == c10::kPerTensorAffine) {
      const auto* affine = static_cast<const at::PerTensorAffineQuantizer*>(quantizer.get());
      view.scale = affine->scale();
      view.zero_point = affine->zero_point();
      reading.attributes_json.clear();
    } else {
      return;  // per channel: the elements have no common scale, the record stands without numbers
    }
  }

  const RememberedStatistics::Place place = SetLeaf(tensor, view, memory, reading);
  if (save && memory.Keeps(view.element_count() * impl->itemsize())) {
    reading.leaf.payload = KeepBytes(place, view, memory);
  }
}

std::vector<double> TensorReader::Sample(const at::Tensor& tensor, size_t most) const {
  const auto dtype = static_cast<DType>(WireDType(tensor.scalar_type()));
  if (!HasReadableMemory(tensor) || !tensor.device().is_cpu() || !tensor.is_contiguous() || tensor.is_quantized() ||
      tensor.is_conj() || tensor.is_neg()) {
    return {};
  }
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto* storage = static_cast<const char*>(impl->storage().unsafeGetStorageImpl()->data());
  const std::span<const int64_t> sizes(tensor.sizes().data(), tensor.sizes().size());
  const std::span<const int64_t> strides(tensor.strides().data(), tensor.strides().size());
  if (storage == nullptr || !FitsStorage(impl, sizes, strides)) return {};
  return SampleDense({.data = storage + impl->storage_offset() * static_cast<int64_t>(impl->itemsize()),
                      .dtype = dtype,
                      .sizes = sizes,
                      .strides = strides},
                     most);
}

RememberedStatistics::Place TensorReader::SetLeaf(const at::Tensor& tensor, const stats::TensorView& view,
                                                  const MemoryReader& memory, TensorReading& reading) const {
  core::Leaf& leaf = reading.leaf;
  if (memory.replays()) {
    leaf.crc32 = fresh().Recall(tensor, view);
    if (!leaf.crc32.has_value()) {
      memory.Measure(view, leaf);
      fresh().Keep(tensor, view, *leaf.crc32);
    }
    return {};
  }
  if (memory.gathers_spread()) {  // which is not remembered
    reading.spread = memory.Measure(view, leaf);
    return {};
  }
  const RememberedStatistics::Place place = remembered_->Read(MemoryOf(tensor), view, memory.session(), leaf,
                                                              [&](core::Leaf& read) { memory.Measure(view, read); });
  if (expects_.load(std::memory_order_relaxed)) ReadOthersAhead(tensor, memory);
  return place;
}

void TensorReader::Expect(const at::Tensor& parameter) const {
  const absl::MutexLock lock(&mu_);
  expected_.emplace_back(parameter.getIntrusivePtr());
  expects_.store(true, std::memory_order_relaxed);
}

void TensorReader::ReadOthersAhead(const at::Tensor& first, const MemoryReader& memory) const {
  std::vector<WeakTensor> expected;
  {
    const absl::MutexLock lock(&mu_);
    const bool is_expected = std::any_of(expected_.begin(), expected_.end(), [&](const WeakTensor& each) {
      return each._unsafe_get_target() == first.unsafeGetTensorImpl();
    });
    if (!is_expected) return;
    expected.swap(expected_);
    expects_.store(false, std::memory_order_relaxed);
  }
  core::PooledDeque<AheadReader::Tensor> others;
  for (const WeakTensor& each : expected) {
    const at::Tensor tensor(each.lock());
    if (!memory.reads_ahead() || !tensor.defined() || tensor.is_same(first)) continue;
    if (std::optional<AheadReader::Tensor> other = AheadOf(tensor, memory)) others.push_back(*std::move(other));
  }
  ahead_.Read(std::move(others));
}

void TensorReader::EndStep() const {
  remembered_->EndStep();
  ahead_.Forget();
  const absl::MutexLock lock(&mu_);
  expected_.clear();
  expects_.store(false, std::memory_order_relaxed);
}

std::shared_ptr<core::Payload> TensorReader::KeepBytes(const RememberedStatistics::Place& place,
                                                       const stats::TensorView& view,
                                                       const MemoryReader& memory) const {
  if (std::shared_ptr<core::Payload> payload = remembered_->RecallBytes(place, view)) return payload;
  std::shared_ptr<core::Payload> payload = memory.CopyBytes(view);
  if (payload != nullptr) remembered_->NameBytes(place, view, payload->name());
  return payload;
}

}  // namespace msprobe::capture
