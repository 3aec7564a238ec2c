#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/analysis/compare/elementwise.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// Errors in ULPs of the output's dtype at the golden number, which need not be of that dtype itself.
struct UlpErrors {
  double max = 0;
  double mean = 0;
  uint64_t over_half = 0;  // elements that are not the golden number rounded to the dtype
  uint64_t over_one = 0;
  uint64_t over_limit = 0;  // DTypeStandard::ulp_count_limit
};

// Compared elements on both sides of DTypeStandard::small_limit, each judged its own way by mindstudio-probe.
struct SmallValueSplit {
  uint64_t small = 0;
  uint64_t small_over_threshold = 0;  // |d| over threshold_small_error
  uint64_t small_over_benchmark = 0;  // |d| over benchmark_small_error
  uint64_t normal = 0;
  uint64_t normal_over = 0;  // |d| / (|b| + relative_epsilon) over relative_limit
  double normal_max_rel = 0;
  double normal_mean_rel = 0;
  double normal_squares = 0;       // sum of d^2
  uint64_t over_accumulative = 0;  // over accumulative_bound: relative where |b| > 1, else absolute
};

// Everything that a policy may ask about one output and its golden value, made in one pass. For output a and golden b,
// d = a - b, over the elements that are finite on both sides unless said otherwise. A golden number that the output's
// dtype cannot hold counts as infinite. docs/checking.md defines each number.
struct Accuracy {
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;  // the output's
  uint64_t elements = 0;                    // a complex element counts as two
  uint64_t compared = 0;
  uint64_t different = 0;  // d != 0; for floats: more than half an ULP
  NonFiniteElements non_finite;
  AbsoluteErrors absolute;
  RelativeErrors relative;
  WorstElement worst;  // with a mismatch of NaN or infinity: the first of these
  double cosine = 1;   // as in ElementwiseMetrics
  double target_norm = 0;
  double golden_norm = 0;
  double golden_max = 0;  // largest |b|
  UlpErrors ulp;          // zeros unless the dtype is a floating one
  SmallValueSplit split;
  uint64_t higher =
      0;  // d > 0, lower: d < 0, both as `different` counts: the error balance is |higher - lower| / elements
  uint64_t lower = 0;
  uint64_t over_torch = 0;  // |d| over torch.testing's tolerance of the dtype
  double mare = 0;          // largest, and mean, |d| / (|b| + 1e-7)
  double mere = 0;

  double error_balance() const;
};

// Adds elements chunk by chunk: memory does not depend on the size of the tensors. One thread at a time.
class AccuracyComparison {
 public:
  // Unimplemented: elements of a dtype cannot be read one by one, or only one side is complex.
  static absl::StatusOr<AccuracyComparison> Start(const TensorDescription& target, const TensorDescription& golden);

  AccuracyComparison(AccuracyComparison&&) noexcept;
  ~AccuracyComparison();

  size_t target_size() const;  // bytes of one element, as LoadedSize counts
  size_t golden_size() const;
  // The next `count` elements of each side.
  void Add(const char* target, const char* golden, size_t count);
  Accuracy Finish();

 private:
  struct Sums;
  explicit AccuracyComparison(std::unique_ptr<Sums> sums);
  std::unique_ptr<Sums> sums_;
};

}  // namespace msprobe::server
