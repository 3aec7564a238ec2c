#pragma once

#include <cstdint>
#include <cstring>

#define MSPROBE_INLINE inline __attribute__((always_inline))

namespace msprobe::server {
namespace {

// Doubles in a register, as the compiler's vectors. A mask has all ones where true. The source that includes this has
// defined kVectorLanes.
struct Simd {
  static constexpr size_t kLanes = kVectorLanes;
  typedef double Lanes __attribute__((vector_size(kLanes * 8)));
  typedef int64_t Mask __attribute__((vector_size(kLanes * 8)));
  // Elements where a mask was true, counted lane by lane.
  struct Counter {
    Mask so_far{};
    MSPROBE_INLINE void Add(const Mask& mask) { so_far -= mask; }
    MSPROBE_INLINE uint64_t Finish() const {
      int64_t sum = 0;
      for (size_t i = 0; i < kLanes; ++i) sum += so_far[i];
      return static_cast<uint64_t>(sum);
    }
  };

  // Lanes never cross a call: all of these are inlined.
  static MSPROBE_INLINE void Load(const double* from, Lanes* to) { std::memcpy(to, from, sizeof(Lanes)); }
  static MSPROBE_INLINE void LoadFloat32(const char* from, Lanes* to) {
    float values[kLanes];
    std::memcpy(values, from, sizeof(values));
    for (size_t i = 0; i < kLanes; ++i) (*to)[i] = static_cast<double>(values[i]);
  }
  static MSPROBE_INLINE void LoadBfloat16(const char* from, Lanes* to) {
    uint16_t halves[kLanes];
    std::memcpy(halves, from, sizeof(halves));
    uint32_t bits[kLanes];
    for (size_t i = 0; i < kLanes; ++i) bits[i] = static_cast<uint32_t>(halves[i]) << 16;
    LoadFloat32(reinterpret_cast<const char*>(bits), to);
  }
  static MSPROBE_INLINE void Store(const Lanes& x, double* to) { std::memcpy(to, &x, sizeof(Lanes)); }
  static MSPROBE_INLINE void Fill(double x, Lanes* to) { *to = Lanes{} + x; }
  static MSPROBE_INLINE void Absolute(const Lanes& x, Lanes* to) {
    const Mask bits = reinterpret_cast<Mask>(x) & INT64_MAX;
    *to = reinterpret_cast<Lanes>(bits);
  }
  static MSPROBE_INLINE void KeepLargest(const Lanes& x, Lanes* so_far) { *so_far = x > *so_far ? x : *so_far; }
  static MSPROBE_INLINE void KeepSmallest(const Lanes& x, Lanes* so_far) { *so_far = x < *so_far ? x : *so_far; }
  static MSPROBE_INLINE void AddProduct(const Lanes& x, const Lanes& y, Lanes* sum) { *sum += x * y; }
  static MSPROBE_INLINE void Choose(const Mask& mask, const Lanes& x, const Lanes& y, Lanes* to) { *to = mask ? x : y; }
  // 2^-exponent of a positive number: the mantissa drops out, the exponent changes its sign.
  static MSPROBE_INLINE void InverseExponent(const Lanes& x, Lanes* to) {
    const Mask bits = 0x7FE0000000000000 - (reinterpret_cast<Mask>(x) & 0x7FF0000000000000);
    *to = reinterpret_cast<Lanes>(bits);
  }
  // 2^(mantissa_bits - exponent) of a positive number of at most 32 bits.
  static MSPROBE_INLINE void InverseUlp(const Lanes& x, int mantissa_bits, Lanes* to) {
    const auto top = static_cast<int64_t>(0x7FE0000000000000 + (static_cast<uint64_t>(mantissa_bits) << 52));
    const Mask bits = top - (reinterpret_cast<Mask>(x) & 0x7FF0000000000000);
    *to = reinterpret_cast<Lanes>(bits);
  }
  // As AccuracyKernels::place, of a group.
  static MSPROBE_INLINE void Places(const Lanes& x, uint32_t* to) {
    const Mask first = (reinterpret_cast<Mask>(x) >> kPlaceShift) & kPlaceMask;
    for (size_t i = 0; i < kLanes; ++i) to[i] = static_cast<uint32_t>(first[i]) + static_cast<uint32_t>(i);
  }
  static MSPROBE_INLINE void Above(const Lanes& x, const Lanes& y, Mask* to) { *to = x > y; }
  static MSPROBE_INLINE void Same(const Lanes& x, const Lanes& y, Mask* to) { *to = x == y; }
  static MSPROBE_INLINE void IsPowerOfTwo(const Lanes& x, Mask* to) {
    *to = (reinterpret_cast<Mask>(x) & 0xFFFFFFFFFFFFF) == Mask{};
  }
  static MSPROBE_INLINE bool Any(const Mask& mask) {
    int64_t any = 0;
    for (size_t i = 0; i < kLanes; ++i) any |= mask[i];
    return any != 0;
  }
  static MSPROBE_INLINE double Total(const Lanes& x) {
    double sum = 0;
    for (size_t i = 0; i < kLanes; ++i) sum += x[i];
    return sum;
  }
  static MSPROBE_INLINE double Top(const Lanes& x) {
    double top = x[0];
    for (size_t i = 1; i < kLanes; ++i) top = x[i] > top ? x[i] : top;
    return top;
  }
  static MSPROBE_INLINE double Least(const Lanes& x) {
    double least = x[0];
    for (size_t i = 1; i < kLanes; ++i) least = x[i] < least ? x[i] : least;
    return least;
  }
};

}  // namespace
}  // namespace msprobe::server
