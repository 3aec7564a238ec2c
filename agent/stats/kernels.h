#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// The innermost loops, compiled once for each SIMD level. Every function reads one block of contiguous, naturally
// aligned elements. The types are trivial, because sources compiled for different instruction sets share them.

namespace msprobe::stats {

// The largest block in bytes. A block stays in the first-level cache while it is read again, and the sum in each SIMD
// lane is so short that rounding stays far below what Statistics promises.
inline constexpr size_t kBlockBytes = 32768;

// Results over the finite elements of a block, and counts over all elements.
struct FloatSums {
  double sum;
  double squares;  // not finite if and only if an element is not finite or (double only) a square overflowed
  double max;      // -inf if there is no finite element; the sign of a zero is arbitrary
  double min;      // +inf if there is no finite element
  uint64_t zeros;
  uint64_t nans;  // only the careful kernels set this and the next two
  uint64_t positive_infs;
  uint64_t negative_infs;
};

struct IntegerSums {
  __int128 sum;
  double squares;
  int64_t max;  // for uint64 elements, the same bits
  int64_t min;
  uint64_t zeros;
};

// What quantising loses: squared errors, and elements that are not 0 and become 0.
struct QuantisedSums {
  double squares;
  uint64_t zeroed;
};
inline constexpr size_t kQuantisedFormats = 8;  // of Quantisation (quantisation.h)

template <typename Element>
struct FloatKernels {
  void (*fast)(const Element*, size_t count, FloatSums*);        // if an element is not finite, only `squares` is right
  void (*careful)(const Element*, size_t count, FloatSums*);     // leaves out non-finite elements and counts them
  bool (*contains)(const Element*, size_t count, Element bits);  // whether an element has exactly these bits
  // Bit i, from the least significant of the first byte on: element i is above 0. Zeros and NaN are not. Writes
  // ceil(count / 8) bytes; the last one is filled up with zeros. streamed: past the caches, where the processor can;
  // another thread sees them once this one has passed a std::atomic_thread_fence of seq_cst.
  void (*positive)(const Element*, size_t count, uint8_t* bits, bool streamed);
};

// Elements of floating types are passed as their bits.
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
  // Adds what each format loses of these floats, in blocks from the first one on. scale: of the tensor, for formats
  // that have one.
  void (*quantise[kQuantisedFormats])(const float*, size_t count, float scale, QuantisedSums*);
};

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#elif defined(__aarch64__)
extern const Kernels kNeonKernels;
#endif

// The kernels that this machine can run, the best last.
std::span<const Kernels* const> SupportedKernels();
const Kernels& BestKernels();

}  // namespace msprobe::stats
