#include "agent/stats/signs.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "agent/stats/decode.h"
#include "agent/stats/layout.h"

namespace msprobe::stats {
namespace {

constexpr size_t kChunkBytes = 8192;  // of elements, so that the doubles of a byte each fit the first-level cache

template <typename Element>
void WriteFloats(const TensorView& view, const FloatKernels<Element>& kernels, uint8_t* out) {
  // Runs may end inside of a byte, so they are gathered to whole words.
  constexpr size_t kElements = kChunkBytes / sizeof(Element);
  alignas(64) Element gathered[kElements];
  size_t filled = 0;
  const bool streamed = SignBytes(static_cast<size_t>(view.element_count())) >= kStreamedSigns;
  const auto flush = [&] {
    kernels.positive(gathered, filled, out, streamed);
    out += SignBytes(filled);
    filled = 0;
  };
  Layout(view, Layout::Order::kRowMajor).ForEachRun(kChunkBytes, true, [&](const void* run, size_t count) {
    const auto* elements = static_cast<const Element*>(run);
    if (filled == 0 && count % 8 == 0) {
      kernels.positive(elements, count, out, streamed);
      out += SignBytes(count);
      return;
    }
    for (size_t done = 0; done < count;) {
      const size_t taken = std::min(kElements - filled, count - done);
      std::memcpy(gathered + filled, elements + done, taken * sizeof(Element));
      filled += taken;
      done += taken;
      if (filled == kElements) flush();
    }
  });
  if (filled > 0) flush();
  if (streamed) std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Calls visit(const double*, size_t) with the elements in row-major order.
template <typename Visit>
void ForEachDouble(const TensorView& view, Visit&& visit) {
  constexpr size_t kValues = 1024;
  Layout(view, Layout::Order::kRowMajor)
      .ForEachRun(kValues * ElementSize(view.dtype), view.negative, [&](const void* elements, size_t count) {
        alignas(64) double values[kValues];
        DecodeToDouble(view, elements, count, 0, values);
        visit(values, count);
      });
}

}  // namespace

bool HasSigns(DType dtype) { return dtype >= DType::kFloat64 && dtype <= DType::kFloat8E8M0FNU; }

bool IsWideFloat(DType dtype) { return dtype >= DType::kFloat64 && dtype <= DType::kBFloat16; }

void WriteSignsWith(const TensorView& view, const Kernels& kernels, uint8_t* out) {
  switch (view.dtype) {
    case DType::kFloat64:
      return WriteFloats(view, kernels.float64, out);
    case DType::kFloat32:
      return WriteFloats(view, kernels.float32, out);
    case DType::kFloat16:
      return WriteFloats(view, kernels.float16, out);
    case DType::kBFloat16:
      return WriteFloats(view, kernels.bfloat16, out);
    default:
      break;
  }
  if (!HasSigns(view.dtype)) return;
  std::memset(out, 0, SignBytes(static_cast<size_t>(view.element_count())));
  size_t at = 0;
  ForEachDouble(view, [&](const double* values, size_t count) {
    for (size_t i = 0; i < count; ++i, ++at) out[at / 8] |= static_cast<uint8_t>((values[i] > 0) << (at % 8));
  });
}

void WriteSigns(const TensorView& view, uint8_t* out) { WriteSignsWith(view, BestKernels(), out); }

void CountIntervals(const TensorView& view, std::span<const double> bounds, std::span<int64_t> counts) {
  std::fill(counts.begin(), counts.end(), 0);
  if (view.element_count() == 0) return;
  // above[i]: elements that are not at or below bounds[i].
  ForEachDouble(view, [&](const double* values, size_t count) {
    int64_t zeros = 0;
    for (size_t i = 0; i < count; ++i) zeros += values[i] == 0;
    counts.back() += zeros;
    for (size_t b = 0; b < bounds.size(); ++b) {
      int64_t within = 0;
      for (size_t i = 0; i < count; ++i) within += values[i] <= bounds[b];
      counts[b] += within;
    }
  });
  const size_t last = bounds.size();
  counts[last] = view.element_count() - (last == 0 ? 0 : counts[last - 1]);
  for (size_t b = last; b-- > 1;) counts[b] -= counts[b - 1];
}

}  // namespace msprobe::stats
