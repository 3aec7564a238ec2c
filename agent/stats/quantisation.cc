#include "agent/stats/quantisation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "agent/stats/decode.h"

namespace msprobe::stats {
namespace {

constexpr size_t kConverted = 1024;

// Of a format with a scale of the tensor: what its largest magnitude becomes.
constexpr std::array<float, kQuantisedFormats> kScaledTo = {0, 0, 448, 57344, 0, 0, 0, 448 * 6};

size_t RowOf(const TensorView& view, size_t block) {
  if (view.sizes.empty()) return 0;
  const size_t row = static_cast<size_t>(view.sizes.back()) * ValuesPerElement(view.dtype);
  return row % block == 0 ? 0 : row;
}

}  // namespace

Quantisation::Formats QuantisationSums::NeedLargest(Quantisation::Formats formats) {
  Quantisation::Formats scaled = 0;
  for (size_t i = 0; i < kQuantisedFormats; ++i) {
    if (kScaledTo[i] != 0) scaled |= Quantisation::Formats{1} << i;
  }
  return formats & scaled;
}

QuantisationSums::QuantisationSums(const TensorView& view, const Kernels& kernels, Quantisation::Formats formats,
                                   double largest)
    : kernels_(kernels), formats_(formats), row_(RowOf(view, kBlock)) {
  for (size_t i = 0; i < kQuantisedFormats; ++i) {
    const float scale = kScaledTo[i] / static_cast<float>(largest);
    scales_[i] = std::isfinite(scale) ? scale : std::numeric_limits<float>::max();
  }
}

void QuantisationSums::Add(const double* values, size_t count) {
  alignas(64) float floats[kConverted];
  for (size_t at = 0; at < count; at += kConverted) {
    const size_t next = std::min(kConverted, count - at);
    for (size_t i = 0; i < next; ++i) floats[i] = static_cast<float>(values[at + i]);
    AddFloats(floats, next);
  }
}

void QuantisationSums::AddFloats(const float* values, size_t count) {
  while (count > 0) {
    const size_t left = row_ == 0 ? count : std::min(count, row_ - in_row_);
    size_t taken = 0;
    if (filled_ == 0 && left >= kBlock) {
      taken = left / kBlock * kBlock;
      Quantise(values, taken);
    } else {
      taken = std::min(left, kBlock - filled_);
      std::memcpy(pending_ + filled_, values, taken * sizeof(float));
      filled_ += taken;
    }
    values += taken;
    count -= taken;
    in_row_ += taken;
    const bool row_ends = row_ != 0 && in_row_ == row_;
    if (row_ends) in_row_ = 0;
    if (filled_ == kBlock || row_ends) Quantise(pending_, std::exchange(filled_, 0));
  }
}

void QuantisationSums::Quantise(const float* values, size_t count) {
  if (count == 0) return;
  for (size_t i = 0; i < kQuantisedFormats; ++i) {
    if ((formats_ >> i & 1) != 0) kernels_.quantise[i](values, count, scales_[i], &sums_[i]);
  }
}

void QuantisationSums::Finish(double norm, Quantisation* out) {
  Quantise(pending_, std::exchange(filled_, 0));
  for (size_t i = 0; i < kQuantisedFormats; ++i) {
    if ((formats_ >> i & 1) == 0) continue;
    out->losses[i].zeroed = sums_[i].zeroed;
    out->losses[i].error = norm > 0 ? std::sqrt(sums_[i].squares) / norm : std::numeric_limits<double>::quiet_NaN();
  }
}

}  // namespace msprobe::stats
