// Vectors of 16 bytes by the compilers' own extension: SSE2 on x86, and correct on every processor. The other levels
// are tested against this one.

#include "agent/stats/kernels.h"

#include <cstring>

namespace msprobe::stats {
namespace {

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));
typedef uint32_t UInt4 __attribute__((vector_size(16)));
typedef double Double2 __attribute__((vector_size(16)));
typedef int64_t Long2 __attribute__((vector_size(16)));
typedef uint16_t Short4 __attribute__((vector_size(8)));

constexpr double kHuge = __builtin_inf();

inline Double2 Low(Float4 x) { return Double2{x[0], x[1]}; }
inline Double2 High(Float4 x) { return Double2{x[2], x[3]}; }

struct Simd {
  static constexpr size_t kFloats = 4;
  static constexpr size_t kDoubles = 2;
  using Floats = Float4;

  static Floats LoadFloat32(const uint32_t* p) {
    Floats x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }

  static UInt4 LoadWords(const uint16_t* p) {
    Short4 words;
    std::memcpy(&words, p, sizeof(words));
    return __builtin_convertvector(words, UInt4);
  }

  static Floats LoadBFloat16(const uint16_t* p) { return reinterpret_cast<Floats>(LoadWords(p) << 16); }

  // Loads 8 elements: those at even places, and those at odd places.
  static void LoadBFloat16Pairs(const uint16_t* p, Floats* even, Floats* odd) {
    UInt4 pairs;
    std::memcpy(&pairs, p, sizeof(pairs));
    *even = reinterpret_cast<Floats>(pairs << 16);
    *odd = reinterpret_cast<Floats>(pairs & 0xffff0000u);
  }

  // A multiplication changes the exponent's bias; it also normalises denormals.
  static Floats LoadFloat16(const uint16_t* p) {
    const UInt4 words = LoadWords(p);
    const Floats magnitude = reinterpret_cast<Floats>((words & 0x7fff) << 13) * 0x1p112f;
    const UInt4 special = reinterpret_cast<UInt4>((words & 0x7c00) == 0x7c00) & 0x7f800000u;
    return reinterpret_cast<Floats>(reinterpret_cast<UInt4>(magnitude) | special | ((words & 0x8000) << 16));
  }

  static Floats Plus(Floats a, Floats b) { return a + b; }
  static Floats Square(Floats x) { return x * x; }
  static Floats PlusSquare(Floats sum, Floats x) { return sum + x * x; }

  template <bool kCareful>
  class Extremes {
   public:
    Floats Look(Floats x) {
      Int4 finite{};
      Floats kept = x;
      if (kCareful) {
        constexpr float kInf = __builtin_inff();
        const Floats magnitude = reinterpret_cast<Floats>(reinterpret_cast<Int4>(x) & 0x7fffffff);
        finite = magnitude < kInf;
        kept = reinterpret_cast<Floats>(reinterpret_cast<Int4>(x) & finite);
        nans_ -= x != x;
        positive_infs_ -= x == kInf;
        negative_infs_ -= x == -kInf;
        // For an element that is not finite, the bound is compared with itself.
        const Floats above = finite ? x : max_;
        const Floats below = finite ? x : min_;
        max_ = above > max_ ? above : max_;
        min_ = below < min_ ? below : min_;
      } else {
        max_ = x > max_ ? x : max_;
        min_ = x < min_ ? x : min_;
      }
      zeros_ -= x == 0.0f;
      return kept;
    }
    void Finish(FloatSums* out) const {
      for (int i = 0; i < 4; ++i) {
        out->max = max_[i] > out->max ? max_[i] : out->max;
        out->min = min_[i] < out->min ? min_[i] : out->min;
        out->zeros += static_cast<uint64_t>(zeros_[i]);
        out->nans += static_cast<uint64_t>(nans_[i]);
        out->positive_infs += static_cast<uint64_t>(positive_infs_[i]);
        out->negative_infs += static_cast<uint64_t>(negative_infs_[i]);
      }
    }

   private:
    Floats max_ = Floats{} - __builtin_inff();
    Floats min_ = Floats{} + __builtin_inff();
    Int4 zeros_{}, nans_{}, positive_infs_{}, negative_infs_{};
  };

  class Sums {
   public:
    void Add(Floats x) {
      const Double2 low = Low(x);
      const Double2 high = High(x);
      sum_low_ += low;
      sum_high_ += high;
      squares_low_ += low * low;
      squares_high_ += high * high;
    }
    void AddSums(Floats sum, Floats squares) {
      sum_low_ += Low(sum);
      sum_high_ += High(sum);
      squares_low_ += Low(squares);
      squares_high_ += High(squares);
    }
    void AddTo(FloatSums* out) const {
      const Double2 sum = sum_low_ + sum_high_;
      const Double2 squares = squares_low_ + squares_high_;
      out->sum += sum[0] + sum[1];
      out->squares += squares[0] + squares[1];
    }

   private:
    Double2 sum_low_{}, sum_high_{}, squares_low_{}, squares_high_{};
  };

  template <bool kCareful>
  class WideAccumulator {
   public:
    void AddDoubles(const uint64_t* p) {
      Double2 x;
      std::memcpy(&x, p, sizeof(x));
      Double2 kept = x;
      if (kCareful) {
        const Double2 magnitude = reinterpret_cast<Double2>(reinterpret_cast<Long2>(x) & INT64_MAX);
        const Long2 finite = magnitude < kHuge;
        kept = reinterpret_cast<Double2>(reinterpret_cast<Long2>(x) & finite);
        nans_ -= x != x;
        positive_infs_ -= x == kHuge;
        negative_infs_ -= x == -kHuge;
        const Double2 above = finite ? x : max_;
        const Double2 below = finite ? x : min_;
        max_ = above > max_ ? above : max_;
        min_ = below < min_ ? below : min_;
      } else {
        max_ = x > max_ ? x : max_;
        min_ = x < min_ ? x : min_;
      }
      zeros_ -= x == 0.0;
      sum_ += kept;
      squares_ += kept * kept;
    }

    FloatSums Finish() const {
      FloatSums out{sum_[0] + sum_[1], squares_[0] + squares_[1], -kHuge, kHuge, 0, 0, 0, 0};
      for (int i = 0; i < 2; ++i) {
        out.max = max_[i] > out.max ? max_[i] : out.max;
        out.min = min_[i] < out.min ? min_[i] : out.min;
        out.zeros += static_cast<uint64_t>(zeros_[i]);
        out.nans += static_cast<uint64_t>(nans_[i]);
        out.positive_infs += static_cast<uint64_t>(positive_infs_[i]);
        out.negative_infs += static_cast<uint64_t>(negative_infs_[i]);
      }
      return out;
    }

   private:
    Double2 sum_{}, squares_{};
    Double2 max_ = Double2{} - kHuge;
    Double2 min_ = Double2{} + kHuge;
    Long2 zeros_{}, nans_{}, positive_infs_{}, negative_infs_{};
  };
};

}  // namespace
}  // namespace msprobe::stats

#include "agent/stats/kernels_template.h"

namespace msprobe::stats {

constinit const Kernels kPortableKernels = MakeKernels("portable");

}  // namespace msprobe::stats
