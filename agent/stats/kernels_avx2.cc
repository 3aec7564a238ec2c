#include <immintrin.h>

#include <cstring>

#include "agent/stats/kernels.h"

namespace msprobe::stats {
namespace {

inline double Sum(__m256d x) { return (x[0] + x[1]) + (x[2] + x[3]); }

inline uint64_t Bits(int mask) { return static_cast<uint64_t>(__builtin_popcount(static_cast<unsigned>(mask))); }

struct Simd {
  static constexpr size_t kFloats = 8;
  static constexpr size_t kDoubles = 4;
  struct Floats {
    __m256 all;
    __m128 low, high;
  };

  static Floats Split(__m256 x) { return {x, _mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)}; }
  // Doubles are made from the halves in memory; to extract one would cost a sixth of the time.
  static Floats LoadFloat32(const uint32_t* p) {
    const float* floats = reinterpret_cast<const float*>(p);
    return {_mm256_loadu_ps(floats), _mm_loadu_ps(floats), _mm_loadu_ps(floats + 4)};
  }
  static Floats LoadFloat16(const uint16_t* p) {
    return Split(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static Floats LoadBFloat16(const uint16_t* p) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return Split(_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)));
  }

  // Loads 16 elements: those at even places, and those at odd places.
  static void LoadBFloat16Pairs(const uint16_t* p, Floats* even, Floats* odd) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    *even = Split(_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)));
    *odd = Split(_mm256_castsi256_ps(_mm256_and_si256(pairs, upper)));
  }

  static Floats Plus(const Floats& a, const Floats& b) { return Split(_mm256_add_ps(a.all, b.all)); }
  static Floats Square(const Floats& x) { return Split(_mm256_mul_ps(x.all, x.all)); }
  static Floats PlusSquare(const Floats& sum, const Floats& x) { return Split(_mm256_fmadd_ps(x.all, x.all, sum.all)); }

  template <bool kCareful>
  class Extremes {
   public:
    Floats Look(const Floats& floats) {
      const __m256 x = floats.all;
      const __m256 zero = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ);
      zeros_ = _mm256_sub_epi32(zeros_, _mm256_castps_si256(zero));
      if constexpr (!kCareful) {
        max_ = _mm256_max_ps(x, max_);
        min_ = _mm256_min_ps(x, min_);
        return floats;
      } else {
        const __m256 inf = _mm256_set1_ps(__builtin_inff());
        const __m256 minus_inf = _mm256_set1_ps(-__builtin_inff());
        const __m256 finite = _mm256_cmp_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), inf, _CMP_LT_OQ);
        nans_ += Bits(_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
        positive_infs_ += Bits(_mm256_movemask_ps(_mm256_cmp_ps(x, inf, _CMP_EQ_OQ)));
        negative_infs_ += Bits(_mm256_movemask_ps(_mm256_cmp_ps(x, minus_inf, _CMP_EQ_OQ)));
        max_ = _mm256_max_ps(_mm256_blendv_ps(minus_inf, x, finite), max_);
        min_ = _mm256_min_ps(_mm256_blendv_ps(inf, x, finite), min_);
        return Split(_mm256_and_ps(x, finite));
      }
    }
    void Finish(FloatSums* out) const {
      out->max = max_[0];
      out->min = min_[0];
      out->nans = nans_;
      out->positive_infs = positive_infs_;
      out->negative_infs = negative_infs_;
      alignas(32) uint32_t zeros[8];
      _mm256_store_si256(reinterpret_cast<__m256i*>(zeros), zeros_);
      for (int i = 0; i < 8; ++i) {
        out->max = max_[i] > out->max ? max_[i] : out->max;
        out->min = min_[i] < out->min ? min_[i] : out->min;
        out->zeros += zeros[i];
      }
    }

   private:
    __m256 max_ = _mm256_set1_ps(-__builtin_inff());
    __m256 min_ = _mm256_set1_ps(__builtin_inff());
    __m256i zeros_ = _mm256_setzero_si256();
    uint64_t nans_ = 0;
    uint64_t positive_infs_ = 0;
    uint64_t negative_infs_ = 0;
  };

  class Sums {
   public:
    void Add(const Floats& x) {
      const __m256d low = _mm256_cvtps_pd(x.low);
      const __m256d high = _mm256_cvtps_pd(x.high);
      sum_low_ = _mm256_add_pd(sum_low_, low);
      sum_high_ = _mm256_add_pd(sum_high_, high);
      squares_low_ = _mm256_fmadd_pd(low, low, squares_low_);
      squares_high_ = _mm256_fmadd_pd(high, high, squares_high_);
    }
    void AddSums(const Floats& sum, const Floats& squares) {
      sum_low_ = _mm256_add_pd(sum_low_, _mm256_cvtps_pd(sum.low));
      sum_high_ = _mm256_add_pd(sum_high_, _mm256_cvtps_pd(sum.high));
      squares_low_ = _mm256_add_pd(squares_low_, _mm256_cvtps_pd(squares.low));
      squares_high_ = _mm256_add_pd(squares_high_, _mm256_cvtps_pd(squares.high));
    }
    void AddTo(FloatSums* out) const {
      out->sum += Sum(_mm256_add_pd(sum_low_, sum_high_));
      out->squares += Sum(_mm256_add_pd(squares_low_, squares_high_));
    }

   private:
    __m256d sum_low_ = _mm256_setzero_pd();
    __m256d sum_high_ = _mm256_setzero_pd();
    __m256d squares_low_ = _mm256_setzero_pd();
    __m256d squares_high_ = _mm256_setzero_pd();
  };

  template <bool kCareful>
  class WideAccumulator {
   public:
    void AddDoubles(const uint64_t* p) {
      const __m256d x = _mm256_castsi256_pd(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
      __m256d kept = x;
      if constexpr (kCareful) {
        const __m256d inf = _mm256_set1_pd(__builtin_inf());
        const __m256d minus_inf = _mm256_set1_pd(-__builtin_inf());
        const __m256d finite = _mm256_cmp_pd(_mm256_andnot_pd(_mm256_set1_pd(-0.0), x), inf, _CMP_LT_OQ);
        kept = _mm256_and_pd(x, finite);
        nans_ += Bits(_mm256_movemask_pd(_mm256_cmp_pd(x, x, _CMP_UNORD_Q)));
        positive_infs_ += Bits(_mm256_movemask_pd(_mm256_cmp_pd(x, inf, _CMP_EQ_OQ)));
        negative_infs_ += Bits(_mm256_movemask_pd(_mm256_cmp_pd(x, minus_inf, _CMP_EQ_OQ)));
        max_ = _mm256_max_pd(_mm256_blendv_pd(minus_inf, x, finite), max_);
        min_ = _mm256_min_pd(_mm256_blendv_pd(inf, x, finite), min_);
      } else {
        max_ = _mm256_max_pd(x, max_);
        min_ = _mm256_min_pd(x, min_);
      }
      zeros_ += Bits(_mm256_movemask_pd(_mm256_cmp_pd(x, _mm256_setzero_pd(), _CMP_EQ_OQ)));
      sum_ = _mm256_add_pd(sum_, kept);
      squares_ = _mm256_fmadd_pd(kept, kept, squares_);
    }

    FloatSums Finish() const {
      FloatSums out{Sum(sum_), Sum(squares_), max_[0], min_[0], zeros_, nans_, positive_infs_, negative_infs_};
      for (int i = 1; i < 4; ++i) {
        out.max = max_[i] > out.max ? max_[i] : out.max;
        out.min = min_[i] < out.min ? min_[i] : out.min;
      }
      return out;
    }

   private:
    __m256d sum_ = _mm256_setzero_pd();
    __m256d squares_ = _mm256_setzero_pd();
    __m256d max_ = _mm256_set1_pd(-__builtin_inf());
    __m256d min_ = _mm256_set1_pd(__builtin_inf());
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

constinit const Kernels kAvx2Kernels = MakeKernels("avx2");

}  // namespace msprobe::stats
