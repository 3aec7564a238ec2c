#pragma once

#include <cstddef>
#include <cstdint>

#include "agent/stats/executor.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::stats {

// zlib's CRC-32 of the elements' bytes in row-major order, as if the tensor had been made contiguous. 0 if it is empty.
// Lazy conj and neg bits are resolved. Threads: any, for all functions here.
uint32_t Crc32(const TensorView& view);
// The same. Large dense memory is read by several threads.
uint32_t SharedCrc32(const TensorView& view, Executor& executor);

// The CRC-32 of bytes that follow each other from those of their parts, as zlib's crc32_combine: `shift` is Crc32Shift
// of the second part's bytes.
uint32_t Crc32Shift(size_t bytes);
uint32_t CombineCrc32(uint32_t first, uint32_t second, uint32_t shift);

// The CRC-32 of the elements as float32, each rounded to the nearest: what checksums of gradients are of. For a dtype
// of real numbers that DecodeToDouble takes.
uint32_t Crc32AsFloat32(const TensorView& view);

// The XOR of the elements' bytes, read as little-endian 64-bit words and padded with zeros to a multiple of 8 bytes.
uint64_t Xor64(const TensorView& view);

// Copies the same bytes to `out`, which holds element_count() * ElementSize(dtype) bytes.
void CopyContiguous(const TensorView& view, void* out);

}  // namespace msprobe::stats
