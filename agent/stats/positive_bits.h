// FloatKernels::positive. Included by kernels_template.h alone, and compiled as it says there: once for each SIMD
// level.
//
// A float is above 0 if its bits, as a signed integer, are above 0 and no larger than those of infinity. So no mode of
// the floating-point unit matters, and denormals count as what they are.

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace msprobe::stats {
namespace {

constexpr size_t kWordBits = 64;  // elements of a call of PositiveWord

#if defined(__AVX512BW__)

inline uint64_t PositiveWord(const uint16_t* p, uint16_t infinity) {
  const __m512i one = _mm512_set1_epi16(1);
  const __m512i limit = _mm512_set1_epi16(static_cast<int16_t>(infinity));
  uint64_t word = 0;
  for (unsigned i = 0; i < 2; ++i) {
    const uint64_t mask = _mm512_cmplt_epu16_mask(_mm512_sub_epi16(_mm512_loadu_si512(p + 32 * i), one), limit);
    word |= mask << (32 * i);
  }
  return word;
}

inline uint64_t PositiveWord(const uint32_t* p, uint32_t infinity) {
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i limit = _mm512_set1_epi32(static_cast<int32_t>(infinity));
  uint64_t word = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const uint64_t mask = _mm512_cmplt_epu32_mask(_mm512_sub_epi32(_mm512_loadu_si512(p + 16 * i), one), limit);
    word |= mask << (16 * i);
  }
  return word;
}

inline uint64_t PositiveWord(const uint64_t* p, uint64_t infinity) {
  const __m512i one = _mm512_set1_epi64(1);
  const __m512i limit = _mm512_set1_epi64(static_cast<int64_t>(infinity));
  uint64_t word = 0;
  for (unsigned i = 0; i < 8; ++i) {
    const uint64_t mask = _mm512_cmplt_epu64_mask(_mm512_sub_epi64(_mm512_loadu_si512(p + 8 * i), one), limit);
    word |= mask << (8 * i);
  }
  return word;
}

#elif defined(__AVX2__)

inline __m256i Load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

inline uint64_t PositiveWord(const uint16_t* p, uint16_t infinity) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i limit = _mm256_set1_epi16(static_cast<int16_t>(infinity));
  const auto above = [&](const uint16_t* at) {
    const __m256i x = Load256(at);
    return _mm256_andnot_si256(_mm256_cmpgt_epi16(x, limit), _mm256_cmpgt_epi16(x, zero));
  };
  uint64_t word = 0;
  for (unsigned i = 0; i < 2; ++i) {
    const __m256i lanes = _mm256_packs_epi16(above(p + 32 * i), above(p + 32 * i + 16));
    const auto mask = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_permute4x64_epi64(lanes, 0xd8)));
    word |= uint64_t{mask} << (32 * i);
  }
  return word;
}

inline uint64_t PositiveWord(const uint32_t* p, uint32_t infinity) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i limit = _mm256_set1_epi32(static_cast<int32_t>(infinity));
  uint64_t word = 0;
  for (unsigned i = 0; i < 8; ++i) {
    const __m256i x = Load256(p + 8 * i);
    const __m256i above = _mm256_andnot_si256(_mm256_cmpgt_epi32(x, limit), _mm256_cmpgt_epi32(x, zero));
    const auto mask = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(above)));
    word |= uint64_t{mask} << (8 * i);
  }
  return word;
}

inline uint64_t PositiveWord(const uint64_t* p, uint64_t infinity) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i limit = _mm256_set1_epi64x(static_cast<int64_t>(infinity));
  uint64_t word = 0;
  for (unsigned i = 0; i < 16; ++i) {
    const __m256i x = Load256(p + 4 * i);
    const __m256i above = _mm256_andnot_si256(_mm256_cmpgt_epi64(x, limit), _mm256_cmpgt_epi64(x, zero));
    const auto mask = static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(above)));
    word |= uint64_t{mask} << (4 * i);
  }
  return word;
}

#elif defined(__ARM_NEON)

inline uint8x8_t Above8(const uint16_t* p, uint16_t infinity) {
  const int16x8_t x = vreinterpretq_s16_u16(vld1q_u16(p));
  return vmovn_u16(vandq_u16(vcgtq_s16(x, vdupq_n_s16(0)), vcleq_s16(x, vdupq_n_s16(static_cast<int16_t>(infinity)))));
}

inline uint16x4_t Above4(const uint32_t* p, uint32_t infinity) {
  const int32x4_t x = vreinterpretq_s32_u32(vld1q_u32(p));
  return vmovn_u32(vandq_u32(vcgtq_s32(x, vdupq_n_s32(0)), vcleq_s32(x, vdupq_n_s32(static_cast<int32_t>(infinity)))));
}
inline uint8x8_t Above8(const uint32_t* p, uint32_t infinity) {
  return vmovn_u16(vcombine_u16(Above4(p, infinity), Above4(p + 4, infinity)));
}

inline uint32x2_t Above2(const uint64_t* p, uint64_t infinity) {
  const int64x2_t x = vreinterpretq_s64_u64(vld1q_u64(p));
  return vmovn_u64(vandq_u64(vcgtq_s64(x, vdupq_n_s64(0)), vcleq_s64(x, vdupq_n_s64(static_cast<int64_t>(infinity)))));
}
inline uint16x4_t Above4(const uint64_t* p, uint64_t infinity) {
  return vmovn_u32(vcombine_u32(Above2(p, infinity), Above2(p + 2, infinity)));
}
inline uint8x8_t Above8(const uint64_t* p, uint64_t infinity) {
  return vmovn_u16(vcombine_u16(Above4(p, infinity), Above4(p + 4, infinity)));
}

template <typename Element>
inline uint64_t PositiveWord(const Element* p, Element infinity) {
  const uint8x8_t weights = vcreate_u8(0x8040201008040201);
  uint64_t word = 0;
  for (unsigned i = 0; i < 8; ++i) {
    word |= uint64_t{vaddv_u8(vand_u8(Above8(p + 8 * i, infinity), weights))} << (8 * i);
  }
  return word;
}

#else

template <typename Element>
inline uint64_t PositiveWord(const Element* p, Element infinity) {
  uint64_t word = 0;
  for (unsigned i = 0; i < kWordBits; ++i) {
    word |= static_cast<uint64_t>(static_cast<Element>(p[i] - 1) < infinity) << i;
  }
  return word;
}

#endif

inline void Store(uint8_t* bits, uint64_t word) { std::memcpy(bits, &word, sizeof(word)); }

inline void StoreStreamed(uint8_t* bits, uint64_t word) {
#if defined(__x86_64__)
  long long moved;  // NOLINT(google-runtime-int): the intrinsic's type
  std::memcpy(&moved, &word, sizeof(moved));
  _mm_stream_si64(reinterpret_cast<long long*>(bits), moved);  // NOLINT(google-runtime-int)
#else
  Store(bits, word);
#endif
}

template <typename Element, Element kInfinityBits, void (*kStore)(uint8_t*, uint64_t)>
size_t PositiveWords(const Element* elements, size_t count, uint8_t* bits) {
  size_t done = 0;
  for (; done + kWordBits <= count; done += kWordBits) {
    kStore(bits + done / 8, PositiveWord(elements + done, kInfinityBits));
  }
  return done;
}

template <typename Element, Element kInfinityBits>
void Positive(const Element* elements, size_t count, uint8_t* bits, bool streamed) {
  const size_t done = streamed ? PositiveWords<Element, kInfinityBits, StoreStreamed>(elements, count, bits)
                               : PositiveWords<Element, kInfinityBits, Store>(elements, count, bits);
  if (done == count) return;
  Element rest[kWordBits] = {};
  std::memcpy(rest, elements + done, (count - done) * sizeof(Element));
  const uint64_t word = PositiveWord(static_cast<const Element*>(rest), kInfinityBits);
  std::memcpy(bits + done / 8, &word, (count - done + 7) / 8);
}

}  // namespace
}  // namespace msprobe::stats
