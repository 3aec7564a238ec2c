#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// The innermost loops, once for each SIMD level. Every function reads one block of contiguous, naturally aligned
// elements. Types here are trivial, since they are shared by sources compiled for different instruction sets.

namespace msprobe::stats {

// Bytes of a block at most: it stays in the first-level cache while being read again, and the per-lane sums of a block
// are short enough that rounding stays far below what Statistics promises.
inline constexpr size_t kBlockBytes = 32768;

// Finite elements of a block; counts are of all.
struct FloatSums {
  double sum;
  double squares;  // not finite exactly when an element is not finite, or (double only) when a square overflowed
  double max;      // -inf when there is no finite element; the sign of a zero is not meant
  double min;      // +inf likewise
  uint64_t zeros;
  uint64_t nans;  // these three from the careful kernels only
  uint64_t positive_infs;
  uint64_t negative_infs;
};

struct IntegerSums {
  __int128 sum;
  double squares;
  int64_t max;  // uint64: the same bits
  int64_t min;
  uint64_t zeros;
};

template <typename Element>
struct FloatKernels {
  void (*fast)(const Element*, size_t count, FloatSums*);     // wrong, but for squares, when an element is not finite
  void (*careful)(const Element*, size_t count, FloatSums*);  // leaves non-finite elements out and counts them
  bool (*contains)(const Element*, size_t count, Element bits);  // an element of exactly these bits?
};

// Elements of floating types go by their bits.
struct Kernels {
  const char* name;
  FloatKernels<uint64_t> float64;
  FloatKernels<uint32_t> float32;
  FloatKernels<uint16_t> float16;
  FloatKernels<uint16_t> bfloat16;
  void (*int8)(const int8_t*, size_t, IntegerSums*);
  void (*int16)(const int16_t*, size_t, IntegerSums*);
  void (*int32)(const int32_t*, size_t, IntegerSums*);
  void (*int64)(const int64_t*, size_t, IntegerSums*);
  void (*uint8)(const uint8_t*, size_t, IntegerSums*);
  void (*uint16)(const uint16_t*, size_t, IntegerSums*);
  void (*uint32)(const uint32_t*, size_t, IntegerSums*);
  void (*uint64)(const uint64_t*, size_t, IntegerSums*);
};

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#elif defined(__aarch64__)
extern const Kernels kNeonKernels;
#endif

// What this machine can run, best last.
std::span<const Kernels* const> SupportedKernels();
const Kernels& BestKernels();

}  // namespace msprobe::stats
