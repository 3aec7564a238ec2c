#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// One stored dimension. It walks a dimension of the tensor in steps: C1 walks C in steps of C0, C0 in steps of 1.
struct StoredAxis {
  size_t dimension = 0;
  int64_t size = 0;
  int64_t step = 1;
};

// The order in which a format keeps the elements of a tensor. Formats are those of Ascend's kernels, which cut
// dimensions into blocks (C is C1 blocks of C0), put the blocks elsewhere, and fill the last one with zeros:
//   ND                      row-major
//   NCHW NHWC HWCN CHWN     and, with a depth, NCDHW NDHWC DHWCN
//   NC1HWC0 NDC1HWC0        channels in blocks of C0
//   FRACTAL_Z FRACTAL_Z_3D  (C1*H*W, N1, N0, C0), (D*C1*H*W, N1, N0, C0): weights of convolutions
//   FRACTAL_NZ              a matrix of R rows and K columns, and any number in front, as (..., K1, R1, R0, K0)
struct Arrangement {
  std::vector<int64_t> sizes;  // of the tensor: N, C, H, W; N, C, D, H, W; or of matrices: how many, R, K
  std::vector<StoredAxis> axes;
  std::vector<int64_t> shape;  // as the format shows it: several axes may be one dimension
};

// From one format to another.
struct Rearrangement {
  Arrangement from;
  Arrangement to;
};

struct RearrangementRequest {
  std::string_view from = "ND";  // "NZ" is FRACTAL_NZ
  std::string_view to = "ND";
  std::vector<int64_t> stored_shape;
  // Sizes without blocks, in the order of `from` if it has none, else in that of `to` if that has none, else in that of
  // NCHW, NCDHW or the matrix. Empty: as the stored shape says, the filling included.
  std::vector<int64_t> sizes;
  int64_t block = 0;        // C0 or K0 of the new format; 0: 32 for elements of a byte, else 16
  size_t element_size = 2;  // bytes
};

// FRACTAL_NZ for NZ, the name itself for others that are known. InvalidArgument names those.
absl::StatusOr<std::string_view> FormatNamed(std::string_view name);
// A kernel's number of a format. Empty: it is not one of ours.
std::string_view FormatOfCode(int64_t code);

// InvalidArgument: a format is not known or keeps other dimensions than the other one, or shape and sizes do not go
// together. FailedPrecondition: `sizes` are needed, as where FRACTAL_Z says C1*H*W in one number.
absl::StatusOr<Rearrangement> PlanRearrangement(const RearrangementRequest& request);

// Gives the elements in their new order. They lie row-major from `offset` on. Memory depends on no size.
absl::Status ReadRearranged(const Rearrangement& plan, ByteSource& source, uint64_t offset, size_t element_size,
                            ContentVisitor visit);

}  // namespace msprobe::server
