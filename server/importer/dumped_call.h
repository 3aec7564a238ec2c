#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace msprobe::server {

// A tensor that a graph of MindSpore wrote.
struct DumpedTensor {
  // Its numbers in statistic.csv, as they stand there; empty: it has no such column.
  struct Row {
    std::string dtype, shape, max, min, mean, norm;
  };
  std::string path;          // of its file; empty: there is its row alone
  bool is_bfloat16 = false;  // which .npy has no type for
  Row row;
};

// What becomes a record: one launch of a kernel, or one direction of one call of a cell.
struct DumpedCall {
  std::string name;    // "Kernel.ReLU.Default_relu-ReLU_ReLU-op0.0.forward", "Cell.net.fc.Dense.backward.0"
  std::string parent;  // the enclosing cell's; empty: none is known
  bool is_backward = false;
  std::map<uint32_t, DumpedTensor> inputs, outputs;  // by place
};

}  // namespace msprobe::server
