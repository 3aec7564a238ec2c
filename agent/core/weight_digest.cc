#include "agent/core/weight_digest.h"

#include <cstring>

namespace msprobe::core {
namespace {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), made odd: one word that
// changes always changes the digest.
uint64_t Factor(uint64_t place) {
  uint64_t bits = (place + 1) * 0x9E3779B97F4A7C15;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  return (bits ^ (bits >> 31)) | 1;
}

template <typename Word>
[[gnu::always_inline]] inline uint64_t Sum(const void* words, size_t count, const uint64_t* factors) {
  const char* const from = static_cast<const char*>(words);
  constexpr size_t kLanes = 8;
  uint64_t sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Word lanes[kLanes];
    std::memcpy(lanes, from + i * sizeof(Word), sizeof(lanes));
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<uint64_t>(int64_t{lanes[lane]}) * factors[i + lane];
    }
  }
  uint64_t sum = 0;
  for (; i < count; ++i) {
    Word word;
    std::memcpy(&word, from + i * sizeof(Word), sizeof(word));
    sum += static_cast<uint64_t>(int64_t{word}) * factors[i];
  }
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

[[gnu::always_inline]] inline uint64_t SumOf(const void* words, size_t word_size, size_t count,
                                             const uint64_t* factors) {
  if (word_size == 1) return Sum<int8_t>(words, count, factors);
  if (word_size == 2) return Sum<int16_t>(words, count, factors);
  return Sum<int32_t>(words, count, factors);
}

#if defined(__x86_64__)
// Has a product of 64 bits a lane; without it a sum takes eight times as long.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] uint64_t SumWide(const void* words, size_t word_size,
                                                                       size_t count, const uint64_t* factors) {
  return SumOf(words, word_size, count, factors);
}

bool HasWide() {
  static const bool has =
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return has;
}
#endif

}  // namespace

uint64_t RowFactor(uint64_t row) { return Factor(row * 2); }

uint64_t ColumnFactor(uint64_t column) { return Factor(column * 2 + 1); }

uint64_t SumOfWords(const void* words, size_t word_size, size_t count, const uint64_t* factors) {
#if defined(__x86_64__)
  if (HasWide()) return SumWide(words, word_size, count, factors);
#endif
  return SumOf(words, word_size, count, factors);
}

}  // namespace msprobe::core
