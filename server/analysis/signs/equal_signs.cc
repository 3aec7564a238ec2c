#include "server/analysis/signs/equal_signs.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace msprobe::server {
namespace {

using Count = uint64_t (*)(const char* one, const char* other, size_t bytes);

uint64_t Words(const char* one, const char* other, size_t bytes) {
  uint64_t count = 0;
  size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    uint64_t a, b;
    std::memcpy(&a, one + at, 8);
    std::memcpy(&b, other + at, 8);
    count += static_cast<uint64_t>(std::popcount(a ^ b));
  }
  for (; at < bytes; ++at) {
    count += static_cast<uint64_t>(std::popcount(static_cast<uint8_t>(one[at] ^ other[at])));
  }
  return count;
}

#if defined(__x86_64__)

// The population of each half of a byte is looked up in a register.
__attribute__((target("avx2"))) uint64_t Avx2(const char* one, const char* other, size_t bytes) {
  const __m256i counts = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
  const __m256i low = _mm256_set1_epi8(0x0f);
  __m256i sums = _mm256_setzero_si256();
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(one + at));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(other + at));
    const __m256i differs = _mm256_xor_si256(a, b);
    const __m256i of_byte =
        _mm256_add_epi8(_mm256_shuffle_epi8(counts, _mm256_and_si256(differs, low)),
                        _mm256_shuffle_epi8(counts, _mm256_and_si256(_mm256_srli_epi16(differs, 4), low)));
    sums = _mm256_add_epi64(sums, _mm256_sad_epu8(of_byte, _mm256_setzero_si256()));
  }
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3] + Words(one + at, other + at, bytes - at);
}

__attribute__((target("avx512f,avx512vpopcntdq"))) uint64_t Avx512(const char* one, const char* other, size_t bytes) {
  __m512i sums = _mm512_setzero_si512();
  size_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    const __m512i differs = _mm512_xor_si512(_mm512_loadu_si512(one + at), _mm512_loadu_si512(other + at));
    sums = _mm512_add_epi64(sums, _mm512_popcnt_epi64(differs));
  }
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, sums);
  uint64_t count = 0;
  for (const uint64_t lane : lanes) count += lane;
  return count + Words(one + at, other + at, bytes - at);
}

Count Best() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512vpopcntdq")) return &Avx512;
  if (__builtin_cpu_supports("avx2")) return &Avx2;
  return &Words;
}

#else

Count Best() { return &Words; }  // which compilers turn into the vector's own count

#endif

}  // namespace

uint64_t CountDifferentBits(const void* one, const void* other, size_t bytes) {
  static const Count count = Best();
  return count(static_cast<const char*>(one), static_cast<const char*>(other), bytes);
}

uint64_t CountDifferentBitsPortably(const void* one, const void* other, size_t bytes) {
  return Words(static_cast<const char*>(one), static_cast<const char*>(other), bytes);
}

}  // namespace msprobe::server
