#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/analysis/compare/tolerance.h"
#include "server/analysis/table/cell.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// Errors in steps between neighbouring numbers of the dtype.
struct UlpMetrics {
  double max = 0;
  double mean = 0;
  double share_over = 0;  // over 32 (float32, float64) or 1 (16-bit floats) steps
};

// Elements that are not finite on both sides.
struct NonFiniteElements {
  uint64_t nan = 0;                        // NaN on one side only
  uint64_t inf = 0;                        // infinite on one side only
  uint64_t inf_sign = 0;                   // infinite on both sides, with different signs
  uint64_t same = 0;                       // both NaN, or the same infinity
  std::optional<uint64_t> first_mismatch;  // the first element of one of the first three kinds
};

// |d| over the compared elements.
struct AbsoluteErrors {
  static constexpr std::array<double, 4> kPercentiles = {50, 90, 99, 99.9};

  double max = 0;
  double mean = 0;
  double rms = 0;  // sqrt(mean d^2)
  // As many percent of the compared elements are at most this, to within 4 %.
  std::array<double, 4> percentiles = {};
};

// |d| / |b| over the compared elements with b != 0.
struct RelativeErrors {
  double max = 0;
  double mean = 0;
  double rms = 0;
  // Share of the compared elements with an error under 1e-2, 5e-3, 1e-3, 1e-4. b == 0 counts as under only if a == 0.
  std::array<double, 4> share_under = {1, 1, 1, 1};
};

// The first element with the largest |d|.
struct WorstElement {
  uint64_t index = 0;
  Cell target = Cell::Real(0);
  Cell golden = Cell::Real(0);
};

// mindstudio-probe's sums. It takes elements that are infinite, or NaN, on both sides for zeros; adds the dtype's
// epsilon to both sides where b == 0; and computes in float32 unless a side is 64 bits wide or an integer.
struct MindstudioSums {
  bool masks_differ = false;  // infinite or NaN at different positions: it computes nothing
  double cosine_dot = 0;
  double target_squares = 0;
  double golden_squares = 0;
  double distance_squares = 0;
  double max_abs = 0;
  double max_rel = 0;
  uint64_t under_thousandth = 0;
  uint64_t under_five_thousandths = 0;
};

// The figures of comparing two tensors element by element. Definitions, for target a and golden b, d = a - b (exact for
// integers), over the elements that are finite on both sides unless said otherwise; docs/analysis.md has them in full.
struct ElementwiseMetrics {
  uint64_t elements = 0;   // of one side
  uint64_t compared = 0;   // finite on both sides; the sums and means are over these
  uint64_t different = 0;  // compared ones with a != b
  bool same_bits = false;  // all bytes and dtypes are equal

  // Compared elements with |d| > absolute + relative * |b|, and the largest ratio of the two sides.
  uint64_t over_tolerance = 0;
  double worst_excess = 0;

  NonFiniteElements non_finite;
  AbsoluteErrors absolute;
  RelativeErrors relative;
  WorstElement worst;

  double cosine = 1;     // 1 where both sides are all zero, 0 where one side is
  double euclidean = 0;  // sqrt(sum d^2)
  double target_norm = 0;
  double golden_norm = 0;

  std::optional<UlpMetrics> ulp;  // only where both sides have the same floating dtype
  MindstudioSums mindstudio;
};

// Where the elements of one tensor come from.
class TensorElements {
 public:
  virtual ~TensorElements() = default;
  virtual const TensorDescription& description() const = 0;
  // Gives contiguous little-endian elements in row-major order. Called once, perhaps on a thread of its own.
  virtual absl::Status Read(ContentVisitor visit) = 0;
};

// Adds elements chunk by chunk: memory does not depend on the size of the tensors. One thread at a time.
class ElementwiseComparison {
 public:
  // Unimplemented: elements of a dtype cannot be read one by one (float4_e2m1fn_x2, unknown dtypes).
  static absl::StatusOr<ElementwiseComparison> Start(const TensorDescription& target, const TensorDescription& golden,
                                                     Tolerance tolerance = {});

  ElementwiseComparison(ElementwiseComparison&&) noexcept;
  ~ElementwiseComparison();

  size_t target_size() const;  // bytes of one element
  size_t golden_size() const;
  // One element of the target as a number.
  double ElementAt(const char* target) const;
  // The next `count` elements of each side.
  void Add(const char* target, const char* golden, size_t count);
  ElementwiseMetrics Finish();

 private:
  struct Sums;
  explicit ElementwiseComparison(std::unique_ptr<Sums> sums);
  std::unique_ptr<Sums> sums_;
};

// Sees the elements of both sides as they are compared, in order.
using ElementsVisitor = std::function<void(const char* target, const char* golden, size_t count)>;

// Reads both to the end. Where they are large, a thread of its own reads the golden one ahead.
// visit: on the caller's thread; empty: nobody looks.
// InvalidArgument: the numbers of elements differ. Other errors are those of the side that could not be read.
absl::StatusOr<ElementwiseMetrics> CompareElements(TensorElements& target, TensorElements& golden,
                                                   Tolerance tolerance = {}, const ElementsVisitor& visit = {});

}  // namespace msprobe::server
