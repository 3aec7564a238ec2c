// Included once by each kernels_<level>.cc after it has defined, in its unnamed namespace, `struct Simd`:
//   Floats                                a vector of kFloats floats; kFloats divides 16
//   LoadFloat32, LoadFloat16, LoadBFloat16(bits) -> Floats
//   LoadBFloat16Pairs(bits, even, odd)    2 * kFloats elements
//   Plus(a, b), Square(x), PlusSquare(sum, x)
//   Extremes<kCareful>                    Look(Floats) updates extremes and counts and returns the values to be summed.
//                                         Finish(out) sets these in NoSums()
//   Sums                                  Add(Floats) adds up values and squares in doubles, AddSums(sum, squares) what
//                                         was added up elsewhere. AddTo(FloatSums*)
//   Extremes16 (optional)                 replaces Look for elements of 16 bits. Add(bits) takes 32 elements without
//                                         NaN. After at least one Add, Finish(out) gives 3 elements, among them the
//                                         largest and the smallest
//   ZerosOf16Bits(bits), with Extremes16  how many of 32 elements are zero, with either sign
//   WideAccumulator<kCareful>             AddDoubles(const uint64_t*) adds kDoubles doubles; Finish()
//   Results are merged by their FloatSums alone.
// Everything stays in the unnamed namespace, and no inline function of the standard library is called. Otherwise the
// linker could keep the copy that was compiled for the largest instruction set.

#include <cstdint>
#include <cstring>

#include "agent/stats/positive_bits.h"
#include "agent/stats/quantise_blocks.h"

namespace msprobe::stats {
namespace {

constexpr double kInfinity = __builtin_inf();

inline FloatSums NoSums() { return FloatSums{0, 0, -kInfinity, kInfinity, 0, 0, 0, 0}; }

inline void Merge(const FloatSums& from, FloatSums* to) {
  to->sum += from.sum;
  to->squares += from.squares;
  to->max = from.max > to->max ? from.max : to->max;
  to->min = from.min < to->min ? from.min : to->min;
  to->zeros += from.zeros;
  to->nans += from.nans;
  to->positive_infs += from.positive_infs;
  to->negative_infs += from.negative_infs;
}

// Prefetches `kBytes` that will be read a little later. The processor's own prefetcher stops at the end of a page and
// is not far enough ahead of these loops. Addresses past the end are harmless.
template <size_t kBytes>
inline void Prefetch(const void* at) {
  constexpr size_t kAhead = 8192;
  constexpr size_t kLine = 64;
  for (size_t line = 0; line < kBytes; line += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(at) + kAhead + line));
  }
}

template <bool kCareful>
inline void AddScalar(double value, FloatSums* sums) {
  if (kCareful) {
    if (value != value) {
      ++sums->nans;
      return;
    }
    if (value == kInfinity) {
      ++sums->positive_infs;
      return;
    }
    if (value == -kInfinity) {
      ++sums->negative_infs;
      return;
    }
  }
  sums->sum += value;
  sums->squares += value * value;
  sums->max = value > sums->max ? value : sums->max;
  sums->min = value < sums->min ? value : sums->min;
  sums->zeros += value == 0;
}

// Elements of 16 bits are first summed in floats, kGroup / kLanes of them in each of kLanes lanes. This does not depend
// on the width of a vector, so every level rounds in the same way. Each step gives every lane two elements.
constexpr size_t kLanes = 16;
constexpr size_t kStep = 2 * kLanes;
constexpr size_t kQuarter = 4 * kStep;
constexpr size_t kGroup = 4 * kQuarter;

struct Float32 {
  using Element = uint32_t;
  static Simd::Floats Load(const Element* p) { return Simd::LoadFloat32(p); }
  static double Widen(Element bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
};

struct BFloat16 {
  using Level = Simd;
  using Element = uint16_t;
  static Simd::Floats Load(const Element* p) { return Simd::LoadBFloat16(p); }
  static void LoadPart(const Element* step, size_t part, Simd::Floats* first, Simd::Floats* second) {
    Simd::LoadBFloat16Pairs(step + part * 2 * Simd::kFloats, first, second);
  }
  static double Widen(Element bits) { return Float32::Widen(static_cast<uint32_t>(bits) << 16); }
};

struct Float16 {
  using Level = Simd;
  using Element = uint16_t;
  static Simd::Floats Load(const Element* p) { return Simd::LoadFloat16(p); }
  static void LoadPart(const Element* step, size_t part, Simd::Floats* first, Simd::Floats* second) {
    *first = Load(step + part * Simd::kFloats);
    *second = Load(step + kLanes + part * Simd::kFloats);
  }
  static double Widen(Element bits) {
    const double magnitude = Float32::Widen((bits & 0x7fffu) << 13) * 0x1p112;
    const double value = (bits & 0x7c00) != 0x7c00 ? magnitude : (bits & 0x3ff) != 0 ? __builtin_nan("") : kInfinity;
    return (bits & 0x8000) != 0 ? -value : value;
  }
};

template <typename Format, bool kCareful>
void SumFloats(const typename Format::Element* elements, size_t count, FloatSums* out) {
  constexpr size_t kWidth = Simd::kFloats;
  FloatSums sums = NoSums();
  size_t at = 0;
  if (count >= kWidth) {
    // Two sums, so that no addition waits for the one before, but one of the extremes: AVX2 has 16 registers, and where
    // a sum had to lie in memory the loop took 1.7 times as long (AMD EPYC, Zen 3).
    Simd::Extremes<kCareful> extremes;
    Simd::Sums even, odd;
    for (; at + 2 * kWidth <= count; at += 2 * kWidth) {
      even.Add(extremes.Look(Format::Load(elements + at)));
      odd.Add(extremes.Look(Format::Load(elements + at + kWidth)));
      Prefetch<2 * kWidth * sizeof(*elements)>(elements + at);
    }
    if (at + kWidth <= count) {
      even.Add(extremes.Look(Format::Load(elements + at)));
      at += kWidth;
    }
    extremes.Finish(&sums);
    even.AddTo(&sums);
    odd.AddTo(&sums);
  }
  for (; at < count; ++at) AddScalar<kCareful>(Format::Widen(elements[at]), &sums);
  *out = sums;
}

// Finds extremes and zeros of finite elements of 16 bits.
template <typename Format, bool kOnBits>
class ShortExtremes {
 public:
  void AddStep(const uint16_t*) {}
  void Add(Simd::Floats first, Simd::Floats second) {
    first_.Look(first);
    second_.Look(second);
  }
  FloatSums Finish() const {
    FloatSums first = NoSums(), second = NoSums();
    first_.Finish(&first);
    second_.Finish(&second);
    Merge(second, &first);
    return first;
  }

 private:
  Simd::Extremes<false> first_, second_;
};

template <typename Format>
class ShortExtremes<Format, true> {
 public:
  void AddStep(const uint16_t* elements) {
    extremes_.Add(elements);
    zeros_ += Format::Level::ZerosOf16Bits(elements);
  }
  void Add(Simd::Floats, Simd::Floats) {}
  FloatSums Finish() const {
    FloatSums sums = NoSums();
    uint16_t candidates[3];
    extremes_.Finish(candidates);
    for (const uint16_t bits : candidates) {
      const double value = Format::Widen(bits);
      sums.max = value > sums.max ? value : sums.max;
      sums.min = value < sums.min ? value : sums.min;
    }
    sums.zeros = zeros_;
    return sums;
  }

 private:
  typename Format::Level::Extremes16 extremes_;
  uint64_t zeros_ = 0;
};

// Adds up 8 elements in each lane, a quarter of a group. Must be inlined to keep the extremes in registers.
template <typename Format, typename Extremes>
__attribute__((always_inline)) inline void SumQuarter(const uint16_t* elements, size_t part, Extremes* extremes,
                                                      Simd::Floats* sum, Simd::Floats* squares) {
  Simd::Floats pairs[4], first, second;
  for (size_t step = 0; step < 4; ++step) {
    const uint16_t* const from = elements + step * kStep;
    Format::LoadPart(from, part, &first, &second);
    extremes->Add(first, second);
    if (part == 0) extremes->AddStep(from);
    pairs[step] = Simd::Plus(first, second);
    *squares = Simd::PlusSquare(step == 0 ? Simd::Square(first) : Simd::PlusSquare(*squares, first), second);
  }
  *sum = Simd::Plus(Simd::Plus(pairs[0], pairs[1]), Simd::Plus(pairs[2], pairs[3]));
  if (part == 0) Prefetch<kQuarter * sizeof(*elements)>(elements);
}

// Sums elements of 16 bits. The square of an element is exact in a float, unless it overflows or vanishes, which only
// happens with bf16. A lane adds up 32 elements. On the way of each element, the sum rounds six times: three times in a
// quarter, which is a tree, and three times between quarters. So the error is at most 6 * 2^-24 of the sum of the
// magnitudes. Squares are added in a chain within a quarter and round ten times.
template <typename Format>
void SumShortFloats(const uint16_t* elements, size_t count, FloatSums* out) {
  size_t at = 0;
  FloatSums sums = NoSums();
  if (count >= kGroup) {
    Simd::Sums totals;
    constexpr bool kOnBits = requires { typename Format::Level::Extremes16; };
    ShortExtremes<Format, kOnBits> extremes;
    for (; at + kGroup <= count; at += kGroup) {
      for (size_t part = 0; part < kLanes / Simd::kFloats; ++part) {
        Simd::Floats sum, squares;
        SumQuarter<Format>(elements + at, part, &extremes, &sum, &squares);
        for (size_t quarter = kQuarter; quarter < kGroup; quarter += kQuarter) {
          Simd::Floats more, more_squares;
          SumQuarter<Format>(elements + at + quarter, part, &extremes, &more, &more_squares);
          sum = Simd::Plus(sum, more);
          squares = Simd::Plus(squares, more_squares);
        }
        totals.AddSums(sum, squares);
      }
    }
    sums = extremes.Finish();
    totals.AddTo(&sums);
  }
  FloatSums rest;
  SumFloats<Format, false>(elements + at, count - at, &rest);
  Merge(rest, &sums);
  // If the mean square is smaller than this, squares that vanished (2^-149 each) might matter. If the sum of squares is
  // not finite, all elements may still be finite.
  constexpr double kSmall = 0x1p-100;
  const bool exact = sums.squares >= kSmall * static_cast<double>(count) && sums.squares < kInfinity;
  if (exact || sums.zeros == count) {
    *out = sums;
  } else {
    SumFloats<Format, false>(elements, count, out);
  }
}

template <bool kCareful>
void SumDoubles(const uint64_t* elements, size_t count, FloatSums* out) {
  constexpr size_t kWidth = Simd::kDoubles;
  FloatSums sums = NoSums();
  size_t at = 0;
  if (count >= kWidth) {
    Simd::WideAccumulator<kCareful> even, odd;
    for (; at + 2 * kWidth <= count; at += 2 * kWidth) {
      even.AddDoubles(elements + at);
      odd.AddDoubles(elements + at + kWidth);
      Prefetch<2 * kWidth * sizeof(*elements)>(elements + at);
    }
    if (at + kWidth <= count) {
      even.AddDoubles(elements + at);
      at += kWidth;
    }
    sums = even.Finish();
    if (count >= 2 * kWidth) Merge(odd.Finish(), &sums);
  }
  for (; at < count; ++at) {
    double value;
    std::memcpy(&value, elements + at, sizeof(value));
    AddScalar<kCareful>(value, &sums);
  }
  *out = sums;
}

template <typename Element>
bool Contains(const Element* elements, size_t count, Element bits) {
  constexpr size_t kStep = 1024 / sizeof(Element);
  size_t at = 0;
  for (; at + kStep <= count; at += kStep) {
    Element found = 0;
    for (size_t i = 0; i < kStep; ++i) found = static_cast<Element>(found | (elements[at + i] == bits));
    if (found != 0) return true;
  }
  for (; at < count; ++at) {
    if (elements[at] == bits) return true;
  }
  return false;
}

template <typename Element>
uint64_t CountZeros(const Element* elements, size_t count) {
  uint64_t zeros = 0;
  size_t at = 0;
  while (at < count) {  // in steps so short that a counter of the element's own width does not overflow
    const size_t end = count - at > 128 ? at + 128 : count;
    Element some = 0;
    for (; at < end; ++at) some = static_cast<Element>(some + (elements[at] == 0));
    zeros += static_cast<uint64_t>(static_cast<uint8_t>(some));
  }
  return zeros;
}

template <typename Element>
void Extremes(const Element* elements, size_t count, IntegerSums* out) {
  Element max = elements[0];
  Element min = elements[0];
  for (size_t i = 1; i < count; ++i) {
    max = elements[i] > max ? elements[i] : max;
    min = elements[i] < min ? elements[i] : min;
  }
  out->max = static_cast<int64_t>(max);
  out->min = static_cast<int64_t>(min);
}

// Exact for elements of up to 32 bits: a block's sum fits into 64 bits, and squares are summed in two halves.
template <typename Element>
void SumIntegers(const Element* elements, size_t count, IntegerSums* out) {
  Extremes(elements, count, out);
  out->zeros = CountZeros(elements, count);
  if constexpr (sizeof(Element) == 1) {
    int32_t sum = 0;
    uint32_t squares = 0;  // 32768 * 255^2 < 2^31
    for (size_t i = 0; i < count; ++i) {
      const int32_t value = elements[i];
      sum += value;
      squares += static_cast<uint32_t>(value * value);
    }
    out->sum = sum;
    out->squares = squares;
  } else if constexpr (sizeof(Element) == 2) {
    int32_t sum = 0;  // 16384 * 65535 < 2^30
    uint64_t squares = 0;
    for (size_t i = 0; i < count; ++i) {
      const int32_t value = elements[i];
      sum += value;
      squares += static_cast<uint32_t>(value) * static_cast<uint32_t>(value);
    }
    out->sum = sum;
    out->squares = static_cast<double>(squares);
  } else if constexpr (sizeof(Element) == 4) {
    int64_t sum = 0;
    uint64_t low = 0, high = 0;
    for (size_t i = 0; i < count; ++i) {
      const int64_t value = elements[i];
      const uint64_t square = static_cast<uint64_t>(value) * static_cast<uint64_t>(value);
      sum += value;
      low += square & 0xffffffffu;
      high += square >> 32;
    }
    out->sum = sum;
    out->squares = static_cast<double>(low) + static_cast<double>(high) * 0x1p32;
  } else {
    uint64_t low = 0;
    decltype(elements[0] + 0) high = 0;  // signed if the elements are
    double squares[4] = {};
    size_t at = 0;
    for (; at + 4 <= count; at += 4) {
      for (size_t i = 0; i < 4; ++i) {
        const double value = static_cast<double>(elements[at + i]);
        squares[i] += value * value;
      }
    }
    for (; at < count; ++at) squares[0] += static_cast<double>(elements[at]) * static_cast<double>(elements[at]);
    for (size_t i = 0; i < count; ++i) {
      low += static_cast<uint64_t>(elements[i]) & 0xffffffffu;
      high += elements[i] >> 32;
    }
    out->sum = (static_cast<__int128>(high) << 32) + static_cast<__int128>(low);
    out->squares = (squares[0] + squares[1]) + (squares[2] + squares[3]);
  }
}

constexpr Kernels MakeKernels(const char* name) {
  return Kernels{
      name,
      {SumDoubles<false>, SumDoubles<true>, Contains<uint64_t>, Positive<uint64_t, uint64_t{0x7ff0} << 48>},
      {SumFloats<Float32, false>, SumFloats<Float32, true>, Contains<uint32_t>, Positive<uint32_t, 0x7f800000>},
      {SumShortFloats<Float16>, SumFloats<Float16, true>, Contains<uint16_t>, Positive<uint16_t, 0x7c00>},
      {SumShortFloats<BFloat16>, SumFloats<BFloat16, true>, Contains<uint16_t>, Positive<uint16_t, 0x7f80>},
      SumIntegers<int8_t>,
      SumIntegers<int16_t>,
      SumIntegers<int32_t>,
      SumIntegers<int64_t>,
      SumIntegers<uint8_t>,
      SumIntegers<uint16_t>,
      SumIntegers<uint32_t>,
      SumIntegers<uint64_t>,
      {QuantiseBlocks<OfBf16, Unscaled>, QuantiseBlocks<OfFp16, Unscaled>, QuantiseBlocks<OfE4M3, OfTensor>,
       QuantiseBlocks<OfE5M2, OfTensor>, QuantiseBlocks<OfE4M3, PowerOfBlock>, QuantiseBlocks<OfE5M2, PowerOfBlock>,
       QuantiseBlocks<OfE2M1, PowerOfBlock>, QuantiseBlocks<OfE2M1, Float8OfBlock>},
  };
}

}  // namespace
}  // namespace msprobe::stats
