#include "server/analysis/checkpoint/weight_digest.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>

#include "agent/core/weight_digest.h"
#include "server/analysis/compare/element_load.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kChunkElements = 64 << 10;

uint16_t BFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t Float16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (magnitude < 0x38800000) {                       // subnormal: adding 0.5 leaves it, rounded, in the last bits
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1) - ((127 - 15) << 23);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

template <typename To, typename Cast>
void CastAll(const std::vector<double>& from, size_t count, std::string& to, Cast cast) {
  for (size_t i = 0; i < count; ++i) {
    const To value = cast(from[i]);
    std::memcpy(to.data() + i * sizeof(To), &value, sizeof(To));
  }
}

void Cast(const std::vector<double>& from, size_t count, v1::DType dtype, std::string& to) {
  const auto narrow = [](double value) { return static_cast<float>(value); };
  switch (dtype) {
    case v1::DTYPE_FLOAT64:
      return CastAll<double>(from, count, to, [](double value) { return value; });
    case v1::DTYPE_FLOAT32:
      return CastAll<float>(from, count, to, narrow);
    case v1::DTYPE_FLOAT16:
      return CastAll<uint16_t>(from, count, to, [&](double value) { return Float16(narrow(value)); });
    default:
      return CastAll<uint16_t>(from, count, to, [&](double value) { return BFloat16(narrow(value)); });
  }
}

bool IsPlainFloat(v1::DType dtype) {
  return dtype == v1::DTYPE_FLOAT64 || dtype == v1::DTYPE_FLOAT32 || dtype == v1::DTYPE_FLOAT16 ||
         dtype == v1::DTYPE_BFLOAT16;
}

// Elements in row-major order, as words of whole rows or parts of rows.
class Digester {
 public:
  Digester(const std::vector<int64_t>& shape, size_t element)
      : word_(core::DigestWordSize(element)),
        words_of_element_(element / word_),
        columns_(shape.size() < 2 ? words_of_element_ : static_cast<uint64_t>(shape.back()) * words_of_element_),
        block_rows_(core::RowsOfDigestBlock(DigestedRows(shape))),
        blocks_((DigestedRows(shape) + block_rows_ - 1) / block_rows_) {
    factors_.resize(columns_);
    for (uint64_t column = 0; column < columns_; ++column) factors_[column] = core::ColumnFactor(column);
  }

  void Add(const char* elements, uint64_t count) {
    uint64_t words = count * words_of_element_;
    while (words > 0) {
      const uint64_t some = std::min(words, columns_ - column_);
      const uint64_t sum = core::SumOfWords(elements, word_, some, factors_.data() + column_);
      blocks_[row_ / block_rows_] += core::RowFactor(row_) * sum;
      elements += some * word_;
      words -= some;
      column_ += some;
      if (column_ == columns_) {
        column_ = 0;
        ++row_;
      }
    }
  }

  BlockDigests Finish() && { return std::move(blocks_); }

 private:
  const size_t word_;
  const uint64_t words_of_element_;
  const uint64_t columns_;  // words of a row
  const uint64_t block_rows_;
  std::vector<uint64_t> factors_;
  BlockDigests blocks_;
  uint64_t row_ = 0, column_ = 0;
};

}  // namespace

uint64_t DigestedRows(const std::vector<int64_t>& shape) {
  if (shape.empty()) return 1;
  if (shape.size() == 1) return static_cast<uint64_t>(shape[0]);
  return std::accumulate(shape.begin(), shape.end() - 1, uint64_t{1},
                         [](uint64_t rows, int64_t size) { return rows * static_cast<uint64_t>(size); });
}

uint64_t WholeDigest(const BlockDigests& blocks) { return std::accumulate(blocks.begin(), blocks.end(), uint64_t{0}); }

bool IsZero(const BlockDigests& blocks) {
  return std::all_of(blocks.begin(), blocks.end(), [](uint64_t block) { return block == 0; });
}

bool CanCast(v1::DType from, v1::DType to) { return IsPlainFloat(from) && IsPlainFloat(to); }

absl::StatusOr<BlockDigests> DigestBlocks(const LogicalTensor& tensor, v1::DType dtype,
                                          const std::function<bool()>& cancelled) {
  const size_t element = DTypeSize(tensor.dtype);
  Digester digester(tensor.shape, DTypeSize(dtype));
  LogicalReader reader(tensor);
  const uint64_t elements = tensor.elements(), chunk = std::min(elements, kChunkElements);
  std::string buffer(chunk * element, '\0');
  const bool casts = dtype != tensor.dtype;
  std::string cast(casts ? chunk * DTypeSize(dtype) : 0, '\0');
  std::vector<double> values(casts ? chunk : 0);
  TensorDescription description;
  description.dtype = tensor.dtype;
  for (uint64_t at = 0; at < elements; at += chunk) {
    if (cancelled()) return absl::CancelledError("the client is gone");
    const uint64_t count = std::min(chunk, elements - at);
    if (absl::Status status = reader.Read(buffer.data(), count); !status.ok()) return status;
    if (casts) {
      LoadOf(tensor.dtype)(buffer.data(), count, description, values.data());
      Cast(values, count, dtype, cast);
    }
    digester.Add(casts ? cast.data() : buffer.data(), count);
  }
  return std::move(digester).Finish();
}

}  // namespace msprobe::server
