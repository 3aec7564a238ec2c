#pragma once

#include <stdint.h>

#include "agent/torch/device/device_row.h"

// The statistics of a tensor in one pass: each block of threads reads one chunk and leaves a DeviceRow.
//
// Compiled for CUDA by clang (cuda_kernels.cu) and for the host by the tests, which run a block's threads as
// threads; `Block` is what differs: thread(), chunk(), shared(), Synchronize().
//
// Extremes and counts are exact, and sums are of doubles, from the chunk's first element on, so that a mean which is
// large beside the deviations costs no digits. Nothing is written but one row a block, and no block waits for another:
// equal input gives equal bits.
namespace msprobe::capture::cuda {

inline constexpr int kThreads = 256;
// Bytes from one row to the next; device_pieces.h has it as kRowStride.
inline constexpr int64_t kRowBytes = 64;

#ifdef __CUDA__
#define MSPROBE_DEVICE __attribute__((device, always_inline))
#else
#define MSPROBE_DEVICE
#endif
#if defined(__clang__) || defined(__aarch64__)
using NativeHalf = __fp16;
#else
using NativeHalf = _Float16;
#endif

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Bool {
  uint8_t byte;
};

// The findings of one thread, or of several together.
struct Partial {
  float max = -__FLT_MAX__;  // of the finite elements of a floating type
  float min = __FLT_MAX__;
  double sum = 0;  // of element - shift; NaN and infinite elements count as 0
  double squares = 0;
  int64_t integer_max = INT64_MIN;
  int64_t integer_min = INT64_MAX;
  uint32_t nans = 0, ups = 0, downs = 0, zeros = 0;
};

MSPROBE_DEVICE inline float AsFloat(uint32_t bits) {
  float value = 0;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

MSPROBE_DEVICE inline float Widened(float element) { return element; }
MSPROBE_DEVICE inline float Widened(Half element) {
  NativeHalf value;
  __builtin_memcpy(&value, &element, sizeof(value));
  return static_cast<float>(value);
}
MSPROBE_DEVICE inline float Widened(BFloat16 element) { return AsFloat(static_cast<uint32_t>(element.bits) << 16); }
MSPROBE_DEVICE inline int64_t Widened(Bool element) { return element.byte != 0 ? 1 : 0; }
MSPROBE_DEVICE inline int64_t Widened(uint8_t element) { return element; }
MSPROBE_DEVICE inline int64_t Widened(int8_t element) { return element; }
MSPROBE_DEVICE inline int64_t Widened(int16_t element) { return element; }
MSPROBE_DEVICE inline int64_t Widened(int32_t element) { return element; }
MSPROBE_DEVICE inline int64_t Widened(int64_t element) { return element; }

MSPROBE_DEVICE inline double FiniteOr0(float value) { return __builtin_fabsf(value) <= __FLT_MAX__ ? value : 0.0f; }
MSPROBE_DEVICE inline double FiniteOr0(int64_t value) { return static_cast<double>(value); }

MSPROBE_DEVICE inline void AddElement(float value, double shift, Partial& found) {
  found.nans += value != value ? 1 : 0;
  found.ups += value > __FLT_MAX__ ? 1 : 0;
  found.downs += value < -__FLT_MAX__ ? 1 : 0;
  found.zeros += value == 0 ? 1 : 0;
  const bool finite = __builtin_fabsf(value) <= __FLT_MAX__;
  found.max = finite && value > found.max ? value : found.max;
  found.min = finite && value < found.min ? value : found.min;
  const double apart = FiniteOr0(value) - shift;
  found.sum += apart;
  found.squares += apart * apart;
}

MSPROBE_DEVICE inline void AddElement(int64_t value, double shift, Partial& found) {
  found.zeros += value == 0 ? 1 : 0;
  found.integer_max = value > found.integer_max ? value : found.integer_max;
  found.integer_min = value < found.integer_min ? value : found.integer_min;
  const double apart = static_cast<double>(value) - shift;
  found.sum += apart;
  found.squares += apart * apart;
}

MSPROBE_DEVICE inline void Merge(const Partial& other, Partial& found) {
  found.max = other.max > found.max ? other.max : found.max;
  found.min = other.min < found.min ? other.min : found.min;
  found.sum += other.sum;
  found.squares += other.squares;
  found.integer_max = other.integer_max > found.integer_max ? other.integer_max : found.integer_max;
  found.integer_min = other.integer_min < found.integer_min ? other.integer_min : found.integer_min;
  found.nans += other.nans;
  found.ups += other.ups;
  found.downs += other.downs;
  found.zeros += other.zeros;
}

// The DeviceRow of a block whose threads have found this in `elements` elements.
MSPROBE_DEVICE inline DeviceRow RowOf(const Partial& found, int64_t elements, double shift, DeviceRowKind kind) {
  DeviceRow row;
  double max = found.max, min = found.min;
  if (kind != DeviceRowKind::kFloating) {
    max = static_cast<double>(found.integer_max);
    min = static_cast<double>(found.integer_min);
  }
  if (kind == DeviceRowKind::kWideInteger) {
    row.integer_max = found.integer_max;
    row.integer_min = found.integer_min;
  } else {
    row.max = static_cast<float>(max);
    row.min = static_cast<float>(min);
  }
  row.nan_count = static_cast<float>(found.nans);
  row.positive_inf_count = static_cast<float>(found.ups);
  row.negative_inf_count = static_cast<float>(found.downs);
  row.zero_count = static_cast<float>(found.zeros);

  const bool any_finite = elements > static_cast<int64_t>(found.nans) + found.ups + found.downs;
  const double largest = __builtin_fmax(__builtin_fabs(max), __builtin_fabs(min));
  const float bounded = static_cast<float>(any_finite ? __builtin_fmax(largest, __FLT_MIN__) : __FLT_MIN__);
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &bounded, sizeof(bits));
  row.scale = AsFloat(bits & 0x7f800000U);  // down to a power of two

  const double count = static_cast<double>(elements);
  const double mean = found.sum / count;  // less the shift
  const double variance = __builtin_fmax(found.squares / count - mean * mean, 0.0);
  const double sum = (shift + mean) * count / row.scale;
  row.sum = static_cast<float>(sum);
  row.sum_rest = static_cast<float>(sum - row.sum);
  row.variance = static_cast<float>(variance / row.scale / row.scale);
  return row;
}

// The kernel. data: `elements` elements of type T, one after another, on the device, aligned as their type is; chunk:
// how many of them a block reads, at most 2^20; rows: one of kRowBytes for each chunk.
template <typename T, DeviceRowKind kKind, typename Block>
MSPROBE_DEVICE inline void ReduceChunk(Block block, const T* data, int64_t elements, int64_t chunk,
                                       unsigned char* rows) {
  struct alignas(16) Vector {
    uint32_t words[4];
  };
  constexpr int64_t kLanes = sizeof(Vector) / sizeof(T);

  const int64_t begin = block.chunk() * chunk;
  const int64_t count = elements - begin < chunk ? elements - begin : chunk;
  const T* const from = data + begin;
  const double shift = FiniteOr0(Widened(from[0]));

  // Elements before the first whole vector and after the last are read one by one.
  const auto address = reinterpret_cast<uintptr_t>(from);
  const int64_t ahead = static_cast<int64_t>((sizeof(Vector) - address % sizeof(Vector)) % sizeof(Vector) / sizeof(T));
  const int64_t head = ahead < count ? ahead : count;
  const int64_t vectors = (count - head) / kLanes;
  const int64_t singles = count - vectors * kLanes;
  static_assert(2 * kLanes <= kThreads);
  Partial mine;
  if (block.thread() < singles) {
    const int64_t place = block.thread() < head ? block.thread() : block.thread() + vectors * kLanes;
    AddElement(Widened(from[place]), shift, mine);
  }
  const auto* const wide = reinterpret_cast<const Vector*>(from + head);
  for (int64_t i = block.thread(); i < vectors; i += kThreads) {
    const Vector vector = wide[i];
    T lanes[kLanes];
    __builtin_memcpy(lanes, &vector, sizeof(vector));
    for (const T lane : lanes) AddElement(Widened(lane), shift, mine);
  }

  Partial* const shared = block.shared();
  shared[block.thread()] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    block.Synchronize();
    if (block.thread() < half) Merge(shared[block.thread() + half], shared[block.thread()]);
  }
  if (block.thread() != 0) return;
  const DeviceRow row = RowOf(shared[0], count, shift, kKind);
  __builtin_memcpy(rows + block.chunk() * kRowBytes, &row, sizeof(row));
}

}  // namespace msprobe::capture::cuda
