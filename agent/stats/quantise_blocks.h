// Kernels::quantise. Included by kernels_template.h alone, and compiled as it says there: once for each SIMD level.
//
// Everything is done on magnitudes, as rounding knows no sign. A magnitude in the normal range of a format is rounded
// on its bits; below it, where all numbers lie equally far apart, by adding and taking away a float of that spacing.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace msprobe::stats {
namespace {

typedef float QuantisedFloats __attribute__((vector_size(Simd::kFloats * sizeof(float))));
typedef int32_t QuantisedWords __attribute__((vector_size(Simd::kFloats * sizeof(float))));

constexpr float PowerOfTwo(int exponent) {
  return exponent >= -126 ? __builtin_bit_cast(float, (exponent + 127) << 23)
                          : __builtin_bit_cast(float, 1 << (exponent + 149));
}

// kMantissa: bits behind the point. kLeast: exponent of the smallest normal number. kMost: of the largest number.
template <int kMantissaBits, int kLeastExponent, int kMostExponent>
struct NumberFormat {
  static constexpr int kMost = kMostExponent;
  static constexpr int kDropped = 23 - kMantissaBits;
  static constexpr float kSmallestNormal = PowerOfTwo(kLeastExponent);
  static constexpr float kSpacing = 1.5F * PowerOfTwo(kLeastExponent + kDropped);
};
struct OfBf16 : NumberFormat<7, -126, 127> {
  static constexpr float kLargest = 0x1.fep127F;
};
struct OfFp16 : NumberFormat<10, -14, 15> {
  static constexpr float kLargest = 65504;
};
struct OfE4M3 : NumberFormat<3, -6, 8> {
  static constexpr float kLargest = 448;
};
struct OfE5M2 : NumberFormat<2, -14, 15> {
  static constexpr float kLargest = 57344;
};
struct OfE2M1 : NumberFormat<1, 0, 2> {
  static constexpr float kLargest = 6;
};

template <typename Format, typename Floats, typename Words>
inline Floats RoundedMagnitude(Floats magnitude) {
  const Words bits = __builtin_bit_cast(Words, magnitude);
  const Words odd = (bits >> Format::kDropped) & 1;
  const Words kept = (bits + (odd + ((1 << (Format::kDropped - 1)) - 1))) & ~((1 << Format::kDropped) - 1);
  const Floats normal = __builtin_bit_cast(Floats, kept);
  const Floats denormal = (magnitude + Format::kSpacing) - Format::kSpacing;
  const Floats rounded = magnitude < Format::kSmallestNormal ? denormal : normal;
  return rounded > Format::kLargest ? Floats{} + Format::kLargest : rounded;
}

inline QuantisedFloats Magnitudes(const float* values) {
  QuantisedWords bits;
  std::memcpy(&bits, values, sizeof(bits));
  bits &= 0x7fffffff;
  bits &= bits < 0x7f800000;  // what is not finite counts as 0
  return __builtin_bit_cast(QuantisedFloats, bits);
}

// The largest finite magnitude.
template <size_t kBlock>
inline float LargestOf(const float* values) {
  QuantisedWords largest{};
  for (size_t at = 0; at < kBlock; at += Simd::kFloats) {
    const QuantisedWords bits = __builtin_bit_cast(QuantisedWords, Magnitudes(values + at));
    largest = bits > largest ? bits : largest;
  }
  int32_t words[Simd::kFloats];
  std::memcpy(words, &largest, sizeof(words));
  int32_t most = 0;
  for (const int32_t word : words) most = word > most ? word : most;
  return __builtin_bit_cast(float, most);
}

// The exponent of a magnitude: -127 for denormals and 0.
inline int ExponentOf(float magnitude) { return (__builtin_bit_cast(int32_t, magnitude) >> 23) - 127; }

// Rounds values * scale. unit: what 1 is then worth, in which errors are counted, so that their squares are floats.
template <typename Format, size_t kBlock>
inline void RoundBlock(const float* values, float scale, float to_unit, double unit, QuantisedSums* sums) {
  QuantisedFloats squares{};
  QuantisedWords zeroed{};
  for (size_t at = 0; at < kBlock; at += Simd::kFloats) {
    const QuantisedFloats magnitude = Magnitudes(values + at);
    const QuantisedFloats scaled = magnitude * scale;
    const QuantisedFloats rounded = RoundedMagnitude<Format, QuantisedFloats, QuantisedWords>(scaled);
    const QuantisedFloats error = (scaled - rounded) * to_unit;
    squares += error * error;
    zeroed -= (rounded == 0.0F) & (__builtin_bit_cast(QuantisedWords, magnitude) != 0);
  }
  float sum = 0;
  for (size_t i = 0; i < Simd::kFloats; ++i) {
    sum += squares[i];
    sums->zeroed += static_cast<uint64_t>(zeroed[i]);
  }
  sums->squares += static_cast<double>(sum) * (unit * unit);
}

// The scales of one block. Each has `kBlock` elements.
struct Unscaled {
  static constexpr size_t kBlock = 32;
  template <typename Format>
  static void Quantise(const float* values, float, QuantisedSums* sums) {
    // Errors of very small numbers, whose squares would vanish, are counted in units of the block's magnitude.
    int exponent = ExponentOf(LargestOf<kBlock>(values));
    exponent = exponent < -126 ? -126 : exponent > 126 ? 126 : exponent;
    RoundBlock<Format, kBlock>(values, 1, PowerOfTwo(-exponent), PowerOfTwo(exponent), sums);
  }
};
struct OfTensor {
  static constexpr size_t kBlock = 32;
  template <typename Format>
  static void Quantise(const float* values, float scale, QuantisedSums* sums) {
    RoundBlock<Format, kBlock>(values, scale, 1, 1.0 / static_cast<double>(scale), sums);
  }
};
struct PowerOfBlock {
  static constexpr size_t kBlock = 32;
  template <typename Format>
  static void Quantise(const float* values, float, QuantisedSums* sums) {
    const float largest = LargestOf<kBlock>(values);
    if (largest == 0) return;
    const int shared = ExponentOf(largest) - Format::kMost;
    const int exponent = shared < -127 ? -127 : shared;  // E8M0 reaches from -127
    RoundBlock<Format, kBlock>(values, PowerOfTwo(-exponent), 1, PowerOfTwo(exponent), sums);
  }
};
// `scale` is what the tensor's largest magnitude makes 448 * 6 of.
struct Float8OfBlock {
  static constexpr size_t kBlock = 16;
  template <typename Format>
  static void Quantise(const float* values, float scale, QuantisedSums* sums) {
    const float largest = LargestOf<kBlock>(values);
    if (largest == 0) return;
    const float of_block = RoundedMagnitude<OfE4M3, float, int32_t>(largest / Format::kLargest * scale);
    if (of_block == 0) {
      for (size_t i = 0; i < kBlock; ++i) {
        const double value = values[i] - values[i] == 0 ? static_cast<double>(values[i]) : 0;
        sums->squares += value * value;
        sums->zeroed += value != 0;
      }
      return;
    }
    const float encoding = 1 / (of_block * (1 / scale));
    constexpr float kMostFloat = 0x1.fffffep127F;
    RoundBlock<Format, kBlock>(values, encoding > kMostFloat ? kMostFloat : encoding, 1,
                               static_cast<double>(of_block) / static_cast<double>(scale), sums);
  }
};

template <typename Format, typename Scaling>
void QuantiseBlocks(const float* values, size_t count, float scale, QuantisedSums* sums) {
  constexpr size_t kBlock = Scaling::kBlock;
  size_t at = 0;
  for (; at + kBlock <= count; at += kBlock) Scaling::template Quantise<Format>(values + at, scale, sums);
  if (at == count) return;
  alignas(64) float rest[kBlock] = {};
  std::memcpy(rest, values + at, (count - at) * sizeof(float));
  Scaling::template Quantise<Format>(rest, scale, sums);
}

}  // namespace
}  // namespace msprobe::stats
