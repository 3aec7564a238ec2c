// Every aarch64 processor has these instructions, so there is no choice at run time.

#include <arm_neon.h>

#include <cstring>

#include "agent/stats/kernels.h"

namespace msprobe::stats {
namespace {

struct Simd {
  static constexpr size_t kFloats = 4;
  static constexpr size_t kDoubles = 2;
  using Floats = float32x4_t;

  static Floats LoadFloat32(const uint32_t* p) { return vreinterpretq_f32_u32(vld1q_u32(p)); }
  static Floats LoadFloat16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static Floats LoadBFloat16(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  // Loads 8 elements: those at even places, and those at odd places.
  static void LoadBFloat16Pairs(const uint16_t* p, Floats* even, Floats* odd) {
    const uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(p));
    *even = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    *odd = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
  }

  static Floats Plus(Floats a, Floats b) { return vaddq_f32(a, b); }
  static Floats Square(Floats x) { return vmulq_f32(x, x); }
  static Floats PlusSquare(Floats sum, Floats x) { return vfmaq_f32(sum, x, x); }

  static float64x2_t Low(Floats x) { return vcvt_f64_f32(vget_low_f32(x)); }
  static float64x2_t High(Floats x) { return vcvt_high_f64_f32(x); }

  template <bool kCareful>
  class Extremes {
   public:
    Floats Look(Floats x) {
      Floats kept = x;
      if constexpr (kCareful) {
        const Floats inf = vdupq_n_f32(__builtin_inff());
        const uint32x4_t finite = vcaltq_f32(x, inf);
        kept = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), finite));
        not_nans_ = vsubq_u32(not_nans_, vceqq_f32(x, x));
        positive_infs_ = vsubq_u32(positive_infs_, vceqq_f32(x, inf));
        negative_infs_ = vsubq_u32(negative_infs_, vceqq_f32(x, vnegq_f32(inf)));
        ++vectors_;
        max_ = vmaxq_f32(max_, vbslq_f32(finite, x, vnegq_f32(inf)));
        min_ = vminq_f32(min_, vbslq_f32(finite, x, inf));
      } else {
        max_ = vmaxq_f32(max_, x);
        min_ = vminq_f32(min_, x);
      }
      zeros_ = vsubq_u32(zeros_, vceqzq_f32(x));
      return kept;
    }
    void Finish(FloatSums* out) const {
      out->max = vmaxvq_f32(max_);
      out->min = vminvq_f32(min_);
      out->zeros = vaddvq_u32(zeros_);
      out->nans = kCareful ? vectors_ * kFloats - vaddvq_u32(not_nans_) : 0;
      out->positive_infs = vaddvq_u32(positive_infs_);
      out->negative_infs = vaddvq_u32(negative_infs_);
    }

   private:
    Floats max_ = vdupq_n_f32(-__builtin_inff());
    Floats min_ = vdupq_n_f32(__builtin_inff());
    uint32x4_t zeros_ = vdupq_n_u32(0);
    uint32x4_t not_nans_ = vdupq_n_u32(0);
    uint32x4_t positive_infs_ = vdupq_n_u32(0);
    uint32x4_t negative_infs_ = vdupq_n_u32(0);
    uint64_t vectors_ = 0;
  };

  class Sums {
   public:
    void Add(Floats x) {
      const float64x2_t low = Low(x);
      const float64x2_t high = High(x);
      sum_low_ = vaddq_f64(sum_low_, low);
      sum_high_ = vaddq_f64(sum_high_, high);
      squares_low_ = vfmaq_f64(squares_low_, low, low);
      squares_high_ = vfmaq_f64(squares_high_, high, high);
    }
    void AddSums(Floats sum, Floats squares) {
      sum_low_ = vaddq_f64(sum_low_, Low(sum));
      sum_high_ = vaddq_f64(sum_high_, High(sum));
      squares_low_ = vaddq_f64(squares_low_, Low(squares));
      squares_high_ = vaddq_f64(squares_high_, High(squares));
    }
    void AddTo(FloatSums* out) const {
      out->sum += vaddvq_f64(vaddq_f64(sum_low_, sum_high_));
      out->squares += vaddvq_f64(vaddq_f64(squares_low_, squares_high_));
    }

   private:
    float64x2_t sum_low_ = vdupq_n_f64(0);
    float64x2_t sum_high_ = vdupq_n_f64(0);
    float64x2_t squares_low_ = vdupq_n_f64(0);
    float64x2_t squares_high_ = vdupq_n_f64(0);
  };

  template <bool kCareful>
  class WideAccumulator {
   public:
    void AddDoubles(const uint64_t* p) {
      const float64x2_t x = vreinterpretq_f64_u64(vld1q_u64(p));
      float64x2_t kept = x;
      if constexpr (kCareful) {
        const float64x2_t inf = vdupq_n_f64(__builtin_inf());
        const uint64x2_t finite = vcaltq_f64(x, inf);
        kept = vreinterpretq_f64_u64(vandq_u64(vreinterpretq_u64_f64(x), finite));
        not_nans_ = vsubq_u64(not_nans_, vceqq_f64(x, x));
        positive_infs_ = vsubq_u64(positive_infs_, vceqq_f64(x, inf));
        negative_infs_ = vsubq_u64(negative_infs_, vceqq_f64(x, vnegq_f64(inf)));
        ++vectors_;
        max_ = vmaxq_f64(max_, vbslq_f64(finite, x, vnegq_f64(inf)));
        min_ = vminq_f64(min_, vbslq_f64(finite, x, inf));
      } else {
        max_ = vmaxq_f64(max_, x);
        min_ = vminq_f64(min_, x);
      }
      zeros_ = vsubq_u64(zeros_, vceqzq_f64(x));
      sum_ = vaddq_f64(sum_, kept);
      squares_ = vfmaq_f64(squares_, kept, kept);
    }

    FloatSums Finish() const {
      return FloatSums{vaddvq_f64(sum_),           vaddvq_f64(squares_),
                       vmaxvq_f64(max_),           vminvq_f64(min_),
                       vaddvq_u64(zeros_),         kCareful ? vectors_ * kDoubles - vaddvq_u64(not_nans_) : 0,
                       vaddvq_u64(positive_infs_), vaddvq_u64(negative_infs_)};
    }

   private:
    float64x2_t sum_ = vdupq_n_f64(0);
    float64x2_t squares_ = vdupq_n_f64(0);
    float64x2_t max_ = vdupq_n_f64(-__builtin_inf());
    float64x2_t min_ = vdupq_n_f64(__builtin_inf());
    uint64x2_t zeros_ = vdupq_n_u64(0);
    uint64x2_t not_nans_ = vdupq_n_u64(0);
    uint64x2_t positive_infs_ = vdupq_n_u64(0);
    uint64x2_t negative_infs_ = vdupq_n_u64(0);
    uint64_t vectors_ = 0;
  };
};

}  // namespace
}  // namespace msprobe::stats

#include "agent/stats/kernels_template.h"

namespace msprobe::stats {

constinit const Kernels kNeonKernels = MakeKernels("neon");

}  // namespace msprobe::stats
