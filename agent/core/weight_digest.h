#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::core {

// Digests of weights by place, which a program makes on its devices and a server of the files of checkpoints.
// docs/wire.md, Digests of weights, is the definition. They are sums modulo 2^64, so the order does not count, and
// digests of the shards of a tensor add up to its own.
//
// A tensor is rows (all dimensions but the last, flattened; of a vector its elements) of words: its elements as signed
// little-endian integers, those of more than four bytes as several words of four bytes.
//
//     digest = sum over rows of RowFactor(row) * sum over words of ColumnFactor(column) * word

// Odd. `row` and `column` count in the whole tensor, `column` in words.
uint64_t RowFactor(uint64_t row);
uint64_t ColumnFactor(uint64_t column);

// Bytes of the words of an element: 1, 2 or 4.
constexpr size_t DigestWordSize(size_t element_size) { return element_size < 4 ? element_size : 4; }

// Of words one behind the other: the sum of each times its factor. `word_size`: 1, 2 or 4.
uint64_t SumOfWords(const void* words, size_t word_size, size_t count, const uint64_t* factors);

// A tensor's digest comes in at most 64 parts, each of so many rows; only the last one has fewer.
constexpr uint64_t kDigestBlocks = 64;
constexpr uint64_t RowsOfDigestBlock(uint64_t rows) {
  return rows <= kDigestBlocks ? 1 : (rows + kDigestBlocks - 1) / kDigestBlocks;
}

}  // namespace msprobe::core
