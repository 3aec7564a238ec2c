// GCC 12 warns about an uninitialised value in its own _mm512_undefined_pd (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstring>

#include "server/analysis/check/accuracy_kernels.h"

#define MSPROBE_INLINE inline __attribute__((always_inline))

namespace msprobe::server {
namespace {

struct Simd {
  static constexpr size_t kLanes = 8;
  typedef __m512d Lanes;
  typedef __mmask8 Mask;
  struct Counter {
    __m512i so_far = _mm512_setzero_si512();
    MSPROBE_INLINE void Add(Mask mask) { so_far = _mm512_mask_add_epi64(so_far, mask, so_far, _mm512_set1_epi64(1)); }
    MSPROBE_INLINE uint64_t Finish() const { return static_cast<uint64_t>(_mm512_reduce_add_epi64(so_far)); }
  };

  static MSPROBE_INLINE void Load(const double* from, Lanes* to) { *to = _mm512_loadu_pd(from); }
  static MSPROBE_INLINE void LoadFloat32(const char* from, Lanes* to) {
    *to = _mm512_cvtps_pd(_mm256_loadu_ps(reinterpret_cast<const float*>(from)));
  }
  static MSPROBE_INLINE void LoadBfloat16(const char* from, Lanes* to) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    *to = _mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)));
  }
  static MSPROBE_INLINE void Store(const Lanes& x, double* to) { _mm512_storeu_pd(to, x); }
  static MSPROBE_INLINE void Fill(double x, Lanes* to) { *to = _mm512_set1_pd(x); }
  static MSPROBE_INLINE void Absolute(const Lanes& x, Lanes* to) { *to = _mm512_abs_pd(x); }
  static MSPROBE_INLINE void KeepLargest(const Lanes& x, Lanes* so_far) { *so_far = _mm512_max_pd(x, *so_far); }
  static MSPROBE_INLINE void KeepSmallest(const Lanes& x, Lanes* so_far) { *so_far = _mm512_min_pd(x, *so_far); }
  static MSPROBE_INLINE void AddProduct(const Lanes& x, const Lanes& y, Lanes* sum) {
    *sum = _mm512_fmadd_pd(x, y, *sum);
  }
  static MSPROBE_INLINE void Choose(Mask mask, const Lanes& x, const Lanes& y, Lanes* to) {
    *to = _mm512_mask_blend_pd(mask, y, x);
  }
  static MSPROBE_INLINE void InverseExponent(const Lanes& x, Lanes* to) {
    const __m512i exponent = _mm512_and_si512(_mm512_castpd_si512(x), _mm512_set1_epi64(0x7FF0000000000000));
    *to = _mm512_castsi512_pd(_mm512_sub_epi64(_mm512_set1_epi64(0x7FE0000000000000), exponent));
  }
  // 2^(mantissa_bits - exponent) of a positive number of at most 32 bits.
  static MSPROBE_INLINE void InverseUlp(const Lanes& x, int mantissa_bits, Lanes* to) {
    const __m512i exponent = _mm512_and_si512(_mm512_castpd_si512(x), _mm512_set1_epi64(0x7FF0000000000000));
    const auto top = static_cast<int64_t>(0x7FE0000000000000 + (static_cast<uint64_t>(mantissa_bits) << 52));
    *to = _mm512_castsi512_pd(_mm512_sub_epi64(_mm512_set1_epi64(top), exponent));
  }
  // As AccuracyKernels::place, of a group.
  static MSPROBE_INLINE void Places(const Lanes& x, uint32_t* to) {
    const __m512i bits = _mm512_srli_epi64(_mm512_castpd_si512(x), kPlaceShift);
    const __m512i first = _mm512_and_si512(bits, _mm512_set1_epi64(kPlaceMask));
    const __m512i lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(_mm512_or_si512(first, lane)));
  }
  static MSPROBE_INLINE void Above(const Lanes& x, const Lanes& y, Mask* to) {
    *to = _mm512_cmp_pd_mask(x, y, _CMP_GT_OQ);
  }
  static MSPROBE_INLINE void Same(const Lanes& x, const Lanes& y, Mask* to) {
    *to = _mm512_cmp_pd_mask(x, y, _CMP_EQ_OQ);
  }
  static MSPROBE_INLINE void IsPowerOfTwo(const Lanes& x, Mask* to) {
    *to = _mm512_testn_epi64_mask(_mm512_castpd_si512(x), _mm512_set1_epi64(0xFFFFFFFFFFFFF));
  }
  static MSPROBE_INLINE bool Any(Mask mask) { return mask != 0; }
  static MSPROBE_INLINE double Total(const Lanes& x) { return _mm512_reduce_add_pd(x); }
  static MSPROBE_INLINE double Top(const Lanes& x) { return _mm512_reduce_max_pd(x); }
  static MSPROBE_INLINE double Least(const Lanes& x) { return _mm512_reduce_min_pd(x); }
};

}  // namespace
}  // namespace msprobe::server

#include "server/analysis/check/accuracy_kernels_template.h"

namespace msprobe::server {

const AccuracyKernels kAvx512Accuracy = MakeAccuracyKernels("avx512");

}  // namespace msprobe::server
