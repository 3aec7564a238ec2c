#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "agent/stats/tensor_view.h"
#include "agent/torch/cuda/cuda_kernels.h"

namespace msprobe::capture {

// A device's kernels must pass this trial before their numbers are believed: for every type, elements over several
// blocks, one element, and special values (NaN, infinities, both zeros, the smallest and the largest), all at
// addresses where no vector begins. The host's own pass over the same bytes gives the expected numbers.
//
// Fill host memory; copy it to the device; Launch; copy it back; Judge.
//
// Threads: any, once constructed.
class CudaTrial {
 public:
  CudaTrial();

  size_t bytes() const { return bytes_; }  // of elements and rows together
  void Fill(std::span<std::byte> memory) const;
  // memory: the copy on the device, aligned to 16 bytes.
  absl::Status Launch(const CudaKernels& kernels, std::byte* memory, void* stream) const;
  // memory: what came back. An error says which type's number is wrong, and what it should be.
  absl::Status Judge(std::span<const std::byte> memory) const;

 private:
  struct Pattern {
    stats::DType dtype;
    bool strange;
    int64_t elements;
    size_t offset;  // of the elements, in bytes
    size_t rows;    // offset of the rows
  };
  void Add(stats::DType dtype, bool strange, int64_t elements);

  std::vector<Pattern> patterns_;
  size_t bytes_ = 0;
};

}  // namespace msprobe::capture
