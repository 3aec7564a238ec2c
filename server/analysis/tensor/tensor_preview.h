#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/compare/elementwise.h"
#include "server/analysis/table/cell.h"

namespace msprobe::server {

// A summary of a tensor's elements. Statistics are over its finite elements; complex elements count by their absolute
// value.
struct TensorPreview {
  struct Element {
    uint64_t index = 0;  // row-major
    Cell value;
  };

  uint64_t elements = 0;
  uint64_t finite = 0;
  uint64_t nan_count = 0;
  uint64_t positive_inf_count = 0;
  uint64_t negative_inf_count = 0;
  uint64_t zero_count = 0;
  // Where there are finite elements.
  Cell max = Cell::Real(0);
  Cell min = Cell::Real(0);
  double mean = 0;
  double norm = 0;
  double std = 0;                 // of the population
  std::vector<double> bin_edges;  // bins of equal width from min to max; the last one includes max
  std::vector<uint64_t> bin_counts;
  std::vector<Element> largest;  // equal ones in order of index
  std::vector<Element> smallest;
  std::vector<Element> first_non_finite;
};

struct PreviewOptions {
  size_t bins = 20;
  size_t top = 5;
};

// Reads the tensor twice; `open` gives it from its beginning. Memory does not depend on its size.
// Unimplemented: a dtype whose elements cannot be read one by one.
absl::StatusOr<TensorPreview> PreviewOf(const std::function<absl::StatusOr<std::unique_ptr<TensorElements>>()>& open,
                                        const PreviewOptions& options);

}  // namespace msprobe::server
