#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/analysis/compare/tolerance.h"
#include "server/analysis/table/cell.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

struct ElementPair {
  uint64_t index = 0;  // row-major
  Cell target;
  Cell golden;
};

// Elements that show how two tensors differ.
struct ElementPairs {
  std::vector<ElementPair>
      worst;  // by |target - golden|, largest first, not finite before; equal ones in order of index
  std::vector<ElementPair> over;   // the first over the tolerance
  std::vector<ElementPair> first;  // the first of all
};

// Picks up to `count` of each as elements come by. Parts of a complex element count by themselves.
// Threads: one at a time.
class ElementPicker {
 public:
  ElementPicker(const TensorDescription& target, const TensorDescription& golden, Tolerance tolerance, size_t count);

  // The next elements of each side. Both have dtypes that LoadOf knows.
  void Add(const char* target, const char* golden, size_t count);
  ElementPairs Take() { return std::move(picked_); }

 private:
  void Look(const ElementPair& pair);

  const TensorDescription& target_;
  const TensorDescription& golden_;
  const Tolerance tolerance_;
  const size_t count_;
  uint64_t parts_ = 0;  // seen
  ElementPairs picked_;
};

}  // namespace msprobe::server
