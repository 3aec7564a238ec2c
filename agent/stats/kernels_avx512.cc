// GCC 12 warns about an uninitialised value in its own _mm512_undefined_pd (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstring>

#include "agent/stats/kernels.h"

namespace msprobe::stats {
namespace {

inline uint64_t Bits(unsigned mask) { return static_cast<uint64_t>(__builtin_popcount(mask)); }

struct Simd {
  static constexpr size_t kFloats = 16;
  static constexpr size_t kDoubles = 8;
  struct Floats {
    __m512 all;
    __m256 low, high;
  };

  static Floats Split(__m512 x) { return {x, _mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)}; }
  // Loading the halves again is cheaper than extracting one.
  static Floats LoadFloat32(const uint32_t* p) {
    const float* floats = reinterpret_cast<const float*>(p);
    return {_mm512_loadu_ps(floats), _mm256_loadu_ps(floats), _mm256_loadu_ps(floats + 8)};
  }
  static Floats LoadFloat16(const uint16_t* p) {
    return Split(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
  }
  static Floats LoadBFloat16(const uint16_t* p) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return Split(_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)));
  }
  // Loads 32 elements: those at even places, and those at odd places.
  static void LoadBFloat16Pairs(const uint16_t* p, Floats* even, Floats* odd) {
    const __m512i pairs = _mm512_loadu_si512(p);
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    *even = Split(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
    *odd = Split(_mm512_castsi512_ps(_mm512_and_si512(pairs, upper)));
  }
  static Floats Plus(const Floats& a, const Floats& b) { return Split(_mm512_add_ps(a.all, b.all)); }
  static Floats Square(const Floats& x) { return Split(_mm512_mul_ps(x.all, x.all)); }
  static Floats PlusSquare(const Floats& sum, const Floats& x) { return Split(_mm512_fmadd_ps(x.all, x.all, sum.all)); }
  static uint64_t ZerosOf16Bits(const uint16_t* p) {
    return Bits(_mm512_testn_epi16_mask(_mm512_loadu_si512(p), _mm512_set1_epi16(0x7fff)));
  }
  // Elements with one sign are in the order of their bits as integers. Negative elements are above the others as
  // unsigned integers, and below them as signed integers. So the largest element is the largest signed integer or, if
  // all elements are negative, the smallest unsigned integer. The smallest element is the largest unsigned integer or,
  // if no element is negative, the smallest one.
  class Extremes16 {
   public:
    void Add(const uint16_t* p) {
      const __m512i bits = _mm512_loadu_si512(p);
      signed_max_ = _mm512_max_epi16(signed_max_, bits);
      unsigned_max_ = _mm512_max_epu16(unsigned_max_, bits);
      unsigned_min_ = _mm512_min_epu16(unsigned_min_, bits);
    }
    void Finish(uint16_t (&out)[3]) const {
      // With these bits flipped, unsigned integers have the reverse order of signed integers.
      out[0] = MinAfter(0x7fff, signed_max_);
      out[1] = MinAfter(0xffff, unsigned_max_);
      out[2] = MinAfter(0, unsigned_min_);
    }

   private:
    // The element that is the smallest unsigned integer after these bits are flipped.
    static uint16_t MinAfter(uint16_t flipped, __m512i x) {
      const __m512i y = _mm512_xor_si512(x, _mm512_set1_epi16(static_cast<int16_t>(flipped)));
      const __m256i half = _mm256_min_epu16(_mm512_castsi512_si256(y), _mm512_extracti64x4_epi64(y, 1));
      const __m128i least = _mm_min_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
      return static_cast<uint16_t>(_mm_extract_epi16(_mm_minpos_epu16(least), 0) ^ flipped);
    }
    __m512i signed_max_ = _mm512_set1_epi16(INT16_MIN);
    __m512i unsigned_max_ = _mm512_setzero_si512();
    __m512i unsigned_min_ = _mm512_set1_epi16(-1);
  };
  // Adds on the multipliers, which are less busy here than the adders.
  static __m512d PlusDoubles(__m512d sum, __m512d x) { return _mm512_fmadd_pd(x, _mm512_set1_pd(1.0), sum); }

  template <bool kCareful>
  class Extremes {
   public:
    Floats Look(const Floats& floats) {
      const __m512 x = floats.all;
      zeros_ += Bits(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ));
      if constexpr (!kCareful) {
        max_ = _mm512_max_ps(x, max_);
        min_ = _mm512_min_ps(x, min_);
        return floats;
      } else {
        const __m512 inf = _mm512_set1_ps(__builtin_inff());
        const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(x), inf, _CMP_LT_OQ);
        nans_ += Bits(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q));
        positive_infs_ += Bits(_mm512_cmp_ps_mask(x, inf, _CMP_EQ_OQ));
        negative_infs_ += Bits(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-__builtin_inff()), _CMP_EQ_OQ));
        max_ = _mm512_mask_max_ps(max_, finite, x, max_);
        min_ = _mm512_mask_min_ps(min_, finite, x, min_);
        return Split(_mm512_maskz_mov_ps(finite, x));
      }
    }
    void Finish(FloatSums* out) const {
      out->max = _mm512_reduce_max_ps(max_);
      out->min = _mm512_reduce_min_ps(min_);
      out->zeros = zeros_;
      out->nans = nans_;
      out->positive_infs = positive_infs_;
      out->negative_infs = negative_infs_;
    }

   private:
    __m512 max_ = _mm512_set1_ps(-__builtin_inff());
    __m512 min_ = _mm512_set1_ps(__builtin_inff());
    uint64_t zeros_ = 0;
    uint64_t nans_ = 0;
    uint64_t positive_infs_ = 0;
    uint64_t negative_infs_ = 0;
  };

  class Sums {
   public:
    void Add(const Floats& x) {
      const __m512d low = _mm512_cvtps_pd(x.low);
      const __m512d high = _mm512_cvtps_pd(x.high);
      sum_low_ = PlusDoubles(sum_low_, low);
      sum_high_ = PlusDoubles(sum_high_, high);
      squares_low_ = _mm512_fmadd_pd(low, low, squares_low_);
      squares_high_ = _mm512_fmadd_pd(high, high, squares_high_);
    }
    void AddSums(const Floats& sum, const Floats& squares) {
      sum_low_ = PlusDoubles(sum_low_, _mm512_cvtps_pd(sum.low));
      sum_high_ = PlusDoubles(sum_high_, _mm512_cvtps_pd(sum.high));
      squares_low_ = PlusDoubles(squares_low_, _mm512_cvtps_pd(squares.low));
      squares_high_ = PlusDoubles(squares_high_, _mm512_cvtps_pd(squares.high));
    }
    void AddTo(FloatSums* out) const {
      out->sum += _mm512_reduce_add_pd(_mm512_add_pd(sum_low_, sum_high_));
      out->squares += _mm512_reduce_add_pd(_mm512_add_pd(squares_low_, squares_high_));
    }

   private:
    __m512d sum_low_ = _mm512_setzero_pd();
    __m512d sum_high_ = _mm512_setzero_pd();
    __m512d squares_low_ = _mm512_setzero_pd();
    __m512d squares_high_ = _mm512_setzero_pd();
  };

  template <bool kCareful>
  class WideAccumulator {
   public:
    void AddDoubles(const uint64_t* p) {
      const __m512d x = _mm512_loadu_pd(p);
      __m512d kept = x;
      if constexpr (kCareful) {
        const __m512d inf = _mm512_set1_pd(__builtin_inf());
        const __mmask8 finite = _mm512_cmp_pd_mask(_mm512_abs_pd(x), inf, _CMP_LT_OQ);
        kept = _mm512_maskz_mov_pd(finite, x);
        nans_ += Bits(_mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q));
        positive_infs_ += Bits(_mm512_cmp_pd_mask(x, inf, _CMP_EQ_OQ));
        negative_infs_ += Bits(_mm512_cmp_pd_mask(x, _mm512_set1_pd(-__builtin_inf()), _CMP_EQ_OQ));
        max_ = _mm512_mask_max_pd(max_, finite, x, max_);
        min_ = _mm512_mask_min_pd(min_, finite, x, min_);
      } else {
        max_ = _mm512_max_pd(x, max_);
        min_ = _mm512_min_pd(x, min_);
      }
      zeros_ += Bits(_mm512_cmp_pd_mask(x, _mm512_setzero_pd(), _CMP_EQ_OQ));
      sum_ = _mm512_add_pd(sum_, kept);
      squares_ = _mm512_fmadd_pd(kept, kept, squares_);
    }

    FloatSums Finish() const {
      return FloatSums{_mm512_reduce_add_pd(sum_),
                       _mm512_reduce_add_pd(squares_),
                       _mm512_reduce_max_pd(max_),
                       _mm512_reduce_min_pd(min_),
                       zeros_,
                       nans_,
                       positive_infs_,
                       negative_infs_};
    }

   private:
    __m512d sum_ = _mm512_setzero_pd();
    __m512d squares_ = _mm512_setzero_pd();
    __m512d max_ = _mm512_set1_pd(-__builtin_inf());
    __m512d min_ = _mm512_set1_pd(__builtin_inf());
    uint64_t zeros_ = 0;
    uint64_t nans_ = 0;
    uint64_t positive_infs_ = 0;
    uint64_t negative_infs_ = 0;
  };
};

}  // namespace
}  // namespace msprobe::stats

#include "agent/stats/kernels_template.h"

namespace msprobe::stats {

constinit const Kernels kAvx512Kernels = MakeKernels("avx512");

}  // namespace msprobe::stats
