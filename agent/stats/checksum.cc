#include "agent/stats/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "agent/stats/decode.h"
#include "agent/stats/layout.h"
#include "agent/stats/statistics.h"

namespace msprobe::stats {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are checked as little-endian bytes");

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

constexpr uint32_t kPolynomial = 0xEDB88320;  // of CRC-32, bits reversed: the highest is the factor of x^0
constexpr uint32_t kOne = uint32_t{1} << 31;

// The product of two polynomials over GF(2), modulo kPolynomial.
uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & kOne) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

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

uint32_t SharedCrc32(const TensorView& view, Executor& executor) {
  constexpr size_t kPart = size_t{256} << 10;  // in the second cache of most processors
  constexpr size_t kRound = 256;               // parts
  const std::optional<Layout::Run> whole = Layout(view, Layout::Order::kRowMajor).whole(true);
  const size_t bytes = whole ? whole->count * ElementSize(view.dtype) : 0;
  if (bytes < kSharedBytes) return Crc32(view);
  static const uint32_t kPartShift = Crc32Shift(kPart);
  const auto* const from = static_cast<const unsigned char*>(whole->elements);
  uint32_t crc = 0;
  for (size_t begin = 0; begin < bytes; begin += kRound * kPart) {
    const size_t parts = std::min(kRound, (bytes - begin + kPart - 1) / kPart);
    const auto size = [&](size_t part) { return std::min(kPart, bytes - begin - part * kPart); };
    std::array<uint32_t, kRound> checksums;
    executor.Run(parts,
                 [&](size_t part) { checksums[part] = crc32_gzip_refl(0, from + begin + part * kPart, size(part)); });
    for (size_t part = 0; part < parts; ++part) {
      crc = CombineCrc32(crc, checksums[part], size(part) == kPart ? kPartShift : Crc32Shift(size(part)));
    }
  }
  return crc;
}

uint32_t Crc32Shift(size_t bytes) {
  uint32_t shift = kOne;
  uint32_t square = kOne >> 8;  // x^8: a byte of zeros
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) shift = Multiply(square, shift);
    square = Multiply(square, square);
  }
  return shift;
}

uint32_t CombineCrc32(uint32_t first, uint32_t second, uint32_t shift) { return Multiply(shift, first) ^ second; }

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
