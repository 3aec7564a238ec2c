#include "agent/stats/checksum.h"

#include <isa-l/crc.h>

#include <bit>
#include <cstring>
#include <limits>

#include "agent/stats/decode.h"
#include "agent/stats/layout.h"

namespace msprobe::stats {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are checked as little-endian bytes");

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

uint64_t XorWords(const char* bytes, size_t size) {
  constexpr size_t kLanes = 8;
  uint64_t lanes[kLanes] = {};
  size_t at = 0;
  for (; at + sizeof(lanes) <= size; at += sizeof(lanes)) {
    uint64_t words[kLanes];
    std::memcpy(words, bytes + at, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) lanes[i] ^= words[i];
  }
  uint64_t result = 0;
  for (uint64_t lane : lanes) result ^= lane;
  while (at < size) {
    uint64_t word = 0;
    const size_t count = std::min<size_t>(sizeof(word), size - at);
    std::memcpy(&word, bytes + at, count);
    result ^= word;
    at += count;
  }
  return result;
}

}  // namespace

uint32_t Crc32(const TensorView& view) {
  const size_t element_size = ElementSize(view.dtype);
  uint32_t crc = 0;
  Layout(view, Layout::Order::kRowMajor).ForEachRun(kNoLimit, true, [&](const void* elements, size_t count) {
    crc = crc32_gzip_refl(crc, static_cast<const unsigned char*>(elements), count * element_size);
  });
  return crc;
}

uint32_t Crc32AsFloat32(const TensorView& view) {
  if (view.dtype == DType::kFloat32) return Crc32(view);
  constexpr size_t kValues = 1024;
  uint32_t crc = 0;
  Layout(view, Layout::Order::kRowMajor)
      .ForEachRun(kValues * ElementSize(view.dtype), view.negative, [&](const void* elements, size_t count) {
        alignas(64) double values[kValues];
        float floats[kValues];
        DecodeToDouble(view, elements, count, 0, values);
        for (size_t i = 0; i < count; ++i) floats[i] = static_cast<float>(values[i]);
        crc = crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(floats), count * sizeof(float));
      });
  return crc;
}

uint64_t Xor64(const TensorView& view) {
  const size_t element_size = ElementSize(view.dtype);
  uint64_t result = 0;
  size_t offset = 0;
  Layout(view, Layout::Order::kRowMajor).ForEachRun(kNoLimit, true, [&](const void* elements, size_t count) {
    const uint64_t words = XorWords(static_cast<const char*>(elements), count * element_size);
    // A run that starts inside a word enters the total rotated by its offset in the word.
    result ^= std::rotl(words, static_cast<int>(offset % 8) * 8);
    offset += count * element_size;
  });
  return result;
}

void CopyContiguous(const TensorView& view, void* out) {
  const size_t element_size = ElementSize(view.dtype);
  char* to = static_cast<char*>(out);
  Layout(view, Layout::Order::kRowMajor).ForEachRun(kNoLimit, true, [&](const void* elements, size_t count) {
    std::memcpy(to, elements, count * element_size);
    to += count * element_size;
  });
}

}  // namespace msprobe::stats
