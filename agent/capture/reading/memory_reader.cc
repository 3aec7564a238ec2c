#include "agent/capture/reading/memory_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "agent/capture/reading/leaf_numbers.h"
#include "agent/core/content_hash.h"
#include "agent/core/pool.h"
#include "agent/stats/checksum.h"
#include "agent/stats/decode.h"
#include "agent/stats/signs.h"
#include "agent/stats/statistics.h"

namespace msprobe::capture {
namespace {

using stats::DType;

bool IsWide(uint8_t dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kComplex128:
      return true;
    default:
      return false;
  }
}

// Whether each tensor that a model has is captured whole, for its numbers alone.
bool CapturesAll(const core::Config& config) {
  return config.scope.empty() && config.list.empty() && config.select.empty() && config.slice.empty() &&
         config.request_id.empty();
}

size_t BytesOf(const stats::TensorView& view) {
  return static_cast<size_t>(view.element_count()) * stats::ElementSize(view.dtype);
}

// Of numbers that were made of a tensor: they lie on the host in one row.
TensorReading RowOf(const TensorReading& of, DType dtype, size_t count, std::shared_ptr<core::Payload> payload) {
  if (payload != nullptr && count > 0) payload->name()->Set(core::PayloadHash(payload->bytes()));
  TensorReading row;
  row.type = of.type;
  row.device = "cpu";
  row.dtype = static_cast<uint8_t>(dtype);
  row.shape = {static_cast<int64_t>(count)};
  row.leaf.payload = std::move(payload);
  return row;
}

}  // namespace

MemoryReader::MemoryReader(const core::Config& config, core::Session* session, CallSampler* sampler,
                           Spread::Parts spread, bool replays)
    : mode_(config.summary_mode),
      slice_(config.slice),
      high_precision_(config.precision_high),
      waits_(!config.bench_path.empty()),
      has_rows_(!config.request_id.empty()),
      spread_(spread),
      session_(session),
      sampler_(sampler),
      replays_(replays),
      shares_(config.reading_threads > 0 && !spread.any()),
      reads_ahead_(shares_ && mode_ != core::SummaryMode::kXor && CapturesAll(config) && sampler == nullptr &&
                   !replays),
      threads_(config.reading_threads) {}

bool MemoryReader::KeepsDoubles(uint8_t dtype) const { return high_precision_ || IsWide(dtype); }

int64_t MemoryReader::Cut(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                          absl::InlinedVector<int64_t, 6>& shape) const {
  int64_t offset = 0;
  const auto cut = [&](const core::SliceRule& rule) {
    if (rule.dim >= static_cast<int64_t>(shape.size())) return;
    int64_t& size = shape[rule.dim];
    if (rule.size && *rule.size != sizes[rule.dim]) return;
    // As Python slices: negative bounds count from the end, all are clamped.
    const auto clamp = [size](int64_t bound) { return std::clamp<int64_t>(bound < 0 ? bound + size : bound, 0, size); };
    const int64_t begin = clamp(rule.begin);
    const int64_t end = std::max(begin, rule.end ? clamp(*rule.end) : size);
    offset += begin * strides[rule.dim];
    size = end - begin;
  };
  for (const core::SliceRule& rule : slice_) cut(rule);
  if (has_rows_) {
    if (const std::optional<core::SliceRule> rule = rows_.rule()) cut(*rule);
  }
  return offset;
}

std::shared_ptr<const Spread> MemoryReader::Measure(const stats::TensorView& view, core::Leaf& leaf) const {
  bytes_read_.fetch_add(BytesOf(view), std::memory_order_relaxed);
  if (shares_ && BytesOf(view) >= stats::kSharedBytes && stats::HasPlainFloats(view)) {
    bytes_shared_.fetch_add(BytesOf(view), std::memory_order_relaxed);
  }
  if (spread_.any()) {
    auto spread = core::MakePooled<Spread>();
    spread->elements = static_cast<uint64_t>(view.element_count()) * stats::ValuesPerElement(view.dtype);
    SetNumbers(stats::ComputeStatistics(view, nullptr,
                                        {.distribution = spread_.distribution ? &spread->distribution : nullptr,
                                         .quantisation = spread_.formats == 0 ? nullptr : &spread->quantisation,
                                         .formats = spread_.formats}),
               leaf);
    return spread;
  }
  if (replays_) {
    leaf.crc32 = stats::SharedCrc32(view, threads_);
  } else {
    ReadNumbers(view, mode_, view.sizes.empty(), leaf, &threads_);
  }
  return nullptr;
}

void MemoryReader::MeasureNothing(core::Leaf& leaf) const {
  if (mode_ == core::SummaryMode::kMd5) leaf.crc32 = 0;
}

std::shared_ptr<core::Payload> MemoryReader::CopyBytes(const stats::TensorView& view) const {
  std::shared_ptr<core::Payload> payload = session_->AllocatePayload(BytesOf(view));
  if (payload == nullptr || BytesOf(view) == 0) return payload;
  stats::CopyContiguous(view, payload->bytes().data());
  // Here the copy is still in this core's cache; the sender would fetch it from memory.
  payload->name()->Set(core::PayloadHash(payload->bytes()));
  return payload;
}

void MemoryReader::Read(const stats::TensorView& view, bool save, TensorReading& reading) const {
  Read(view, save, reading, [this](const stats::TensorView& part, core::Leaf& leaf) { return Measure(part, leaf); });
}

void MemoryReader::Read(const stats::TensorView& view, bool save, TensorReading& reading, MeasurePart measure) const {
  reading.leaf.is_wide = KeepsDoubles(reading.dtype);
  reading.shape.assign(view.sizes.begin(), view.sizes.end());
  const int64_t offset = Cut(view.sizes, view.strides, reading.shape);
  stats::TensorView part = view;
  part.sizes = reading.shape;
  if (part.element_count() == 0) {
    MeasureNothing(reading.leaf);
  } else {
    part.data = static_cast<const char*>(view.data) + offset * static_cast<int64_t>(stats::ElementSize(view.dtype));
    reading.spread = measure(part, reading.leaf);
  }
  if (save && Keeps(BytesOf(part))) reading.leaf.payload = CopyBytes(part);
}

void MemoryReader::ReadGradient(const stats::TensorView& view, const core::GradProbeConfig& probe,
                                GradientReading& reading) const {
  const auto elements = static_cast<size_t>(view.element_count());
  const bool has_signs = stats::HasSigns(view.dtype);
  core::Leaf& leaf = reading.gradient.leaf;
  leaf.is_wide = KeepsDoubles(static_cast<uint8_t>(view.dtype));
  std::shared_ptr<core::Payload> signs;
  if (probe.signs() && has_signs) signs = session_->AllocatePayload(stats::SignBytes(elements));
  if (elements > 0) {
    bytes_read_.fetch_add(BytesOf(view), std::memory_order_relaxed);
    auto* const bits = signs == nullptr ? nullptr : reinterpret_cast<uint8_t*>(signs->bytes().data());
    SetNumbers(stats::ComputeStatistics(view, &threads_, {.signs = bits}), leaf);
  }
  if (!has_signs) return;
  if (!probe.signs()) {
    leaf.crc32 = elements > 0 ? stats::Crc32AsFloat32(view) : 0;
    return;
  }
  reading.signs = RowOf(reading.gradient, DType::kUInt8, stats::SignBytes(elements), std::move(signs));
  if (probe.level != core::GradProbeConfig::GradLevel::kL2) return;
  std::vector<double> bounds = probe.bounds;
  if (view.dtype != DType::kFloat64) {  // as torch.Tensor(bounds) has them
    for (double& bound : bounds) bound = static_cast<float>(bound);
  }
  std::vector<int64_t> counts(bounds.size() + 2);
  stats::CountIntervals(view, bounds, counts);
  std::shared_ptr<core::Payload> bytes = session_->AllocatePayload(counts.size() * sizeof(int64_t));
  if (bytes != nullptr) std::memcpy(bytes->bytes().data(), counts.data(), counts.size() * sizeof(int64_t));
  reading.counts = RowOf(reading.gradient, DType::kInt64, counts.size(), std::move(bytes));
}

void MemoryReader::ReadArray(const void* data, uint8_t dtype, std::span<const int64_t> shape,
                             std::span<const int64_t> strides, bool save, TensorReading& reading) const {
  reading.dtype = dtype;
  reading.leaf.is_wide = IsWide(dtype);
  const stats::TensorView view{.data = data, .dtype = static_cast<DType>(dtype), .sizes = shape, .strides = strides};
  if (view.element_count() > 0) SetNumbers(stats::ComputeStatistics(view, &threads_), reading.leaf);
  if (save) reading.leaf.payload = CopyBytes(view);
}

}  // namespace msprobe::capture
