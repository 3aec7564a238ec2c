#include "agent/stats/layout.h"

#include <cstdlib>

namespace msprobe::stats {
namespace {

template <size_t kSize>
void GatherSized(const char* from, int64_t stride, size_t count, char* to) {
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(to + i * kSize, from, kSize);
    from += stride;
  }
}

template <typename Word>
void Flip(char* elements, size_t count, Word bits) {
  for (size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, elements + i * sizeof(Word), sizeof(Word));
    word ^= bits;
    std::memcpy(elements + i * sizeof(Word), &word, sizeof(Word));
  }
}

template <typename Unsigned>
void Negate(char* elements, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Unsigned word;
    std::memcpy(&word, elements + i * sizeof(Unsigned), sizeof(Unsigned));
    word = static_cast<Unsigned>(0 - word);
    std::memcpy(elements + i * sizeof(Unsigned), &word, sizeof(Unsigned));
  }
}

// In the fnuz formats 0x80 is NaN, and zero has no sign.
void FlipSignFnuz(char* elements, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if ((elements[i] & 0x7f) != 0) elements[i] = static_cast<char>(elements[i] ^ 0x80);
  }
}

size_t Alignment(DType dtype, size_t element_size) {
  switch (dtype) {
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128:
      return element_size / 2;
    default:
      return std::max<size_t>(1, element_size);
  }
}

}  // namespace

Layout::Layout(const TensorView& view, Order order)
    : first_(static_cast<const char*>(view.data)),
      fleeting_(view.fleeting),
      dtype_(view.dtype),
      conjugate_(view.conjugate),
      negative_(view.negative),
      element_size_(ElementSize(view.dtype)) {
  empty_ = element_size_ == 0;
  const int64_t bytes = static_cast<int64_t>(element_size_);
  Dimensions all;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const int64_t size = view.sizes[i];
    if (size <= 0) empty_ = true;
    if (size > 1) all.push_back({size, view.strides[i] * bytes});
  }
  inner_ = {1, bytes};
  aligned_ = reinterpret_cast<uintptr_t>(first_) % Alignment(dtype_, element_size_) == 0;
  if (empty_) return;

  if (order == Order::kAny) {
    Dimensions spread;
    for (Dimension& dimension : all) {
      if (dimension.stride == 0) {
        repeats_ *= static_cast<uint64_t>(dimension.size);
        continue;
      }
      if (dimension.stride < 0) {
        first_ += dimension.stride * (dimension.size - 1);
        dimension.stride = -dimension.stride;
      }
      spread.push_back(dimension);
    }
    // Insertion sort, because there are few dimensions and they are mostly sorted.
    for (size_t i = 1; i < spread.size(); ++i) {
      for (size_t j = i; j > 0 && spread[j - 1].stride < spread[j].stride; --j) std::swap(spread[j - 1], spread[j]);
    }
    all = spread;
  }

  for (const Dimension& dimension : all) {
    if (!outer_.empty() && outer_.back().stride == dimension.stride * dimension.size) {
      outer_.back() = {outer_.back().size * dimension.size, dimension.stride};
    } else {
      outer_.push_back(dimension);
    }
  }
  if (!outer_.empty()) {
    inner_ = outer_.back();
    outer_.pop_back();
  }
}

void Layout::Gather(const char* from, int64_t stride, size_t count, size_t element_size, char* to) {
  if (stride == static_cast<int64_t>(element_size)) {
    std::memcpy(to, from, count * element_size);
    return;
  }
  switch (element_size) {
    case 1:
      return GatherSized<1>(from, stride, count, to);
    case 2:
      return GatherSized<2>(from, stride, count, to);
    case 4:
      return GatherSized<4>(from, stride, count, to);
    case 8:
      return GatherSized<8>(from, stride, count, to);
    case 16:
      return GatherSized<16>(from, stride, count, to);
    default:
      std::abort();  // ElementSize has no other value, and a view with 0 is empty
  }
}

void Layout::Resolve(DType dtype, bool conjugate, bool negative, char* elements, size_t count) {
  const bool real = negative;
  const bool imaginary = negative != conjugate;  // both bits cancel in the imaginary part
  switch (dtype) {
    case DType::kComplex32:
      return Flip<uint32_t>(elements, count, (real ? 0x8000u : 0u) | (imaginary ? 0x80000000u : 0u));
    case DType::kComplex64:
      return Flip<uint64_t>(elements, count,
                            (real ? uint64_t{1} << 31 : 0) | (imaginary ? uint64_t{1} << 63 : uint64_t{0}));
    case DType::kComplex128:
      for (size_t i = 0; i < count; ++i) {
        if (real) Flip<uint64_t>(elements + 16 * i, 1, uint64_t{1} << 63);
        if (imaginary) Flip<uint64_t>(elements + 16 * i + 8, 1, uint64_t{1} << 63);
      }
      return;
    default:
      break;
  }
  if (!negative) return;
  switch (dtype) {
    case DType::kFloat64:
      return Flip<uint64_t>(elements, count, uint64_t{1} << 63);
    case DType::kFloat32:
      return Flip<uint32_t>(elements, count, 0x80000000u);
    case DType::kFloat16:
    case DType::kBFloat16:
      return Flip<uint16_t>(elements, count, 0x8000);
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
      return Flip<uint8_t>(elements, count, 0x80);
    case DType::kFloat4E2M1FNX2:
      return Flip<uint8_t>(elements, count, 0x88);
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
      return FlipSignFnuz(elements, count);
    case DType::kInt8:
    case DType::kUInt8:
      return Negate<uint8_t>(elements, count);
    case DType::kInt16:
    case DType::kUInt16:
      return Negate<uint16_t>(elements, count);
    case DType::kInt32:
    case DType::kUInt32:
      return Negate<uint32_t>(elements, count);
    case DType::kInt64:
    case DType::kUInt64:
      return Negate<uint64_t>(elements, count);
    default:
      return;  // bool, e8m0 and quantized elements have no negative
  }
}

std::optional<Layout::Run> Layout::whole(bool resolve) const {
  if (empty_ || !outer_.empty() || !dense() || !aligned_ || Rewrites(resolve)) return std::nullopt;
  return Run{first_, static_cast<size_t>(inner_.size)};
}

}  // namespace msprobe::stats
