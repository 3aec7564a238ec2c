#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/importer/dumped_call.h"

namespace msprobe::server {

// A tensor of a cell, by the name that the operators in its graph give it:
// "Cell.{name}.{Class}.{forward|backward}.{input|output}.{i}". In a backward pass these are gradients: the inputs those
// of the cell's results, the outputs those of its arguments.
struct CellTensorName {
  std::string cell;  // "Cell.net.fc.Dense"
  bool is_backward = false, is_output = false;
  uint32_t index = 0;

  static std::optional<CellTensorName> Parse(std::string_view text);
};

// The file of one: "{name}_{dtype}_{id}.npy", or with "_in" or "_out" before the type. Ids grow from file to file.
struct CellTensorFile {
  CellTensorName name;
  std::string dtype;
  uint64_t id = 0;

  static std::optional<CellTensorFile> Parse(std::string_view file);
};

// Arranges the tensors of one step's cells into calls.
//
// 1. The n-th tensor of a name is of the n-th call of that cell in that direction.
// 2. Calls stand in the order in which they ended: a cell behind those inside it.
// 3. The parent of a call is the next call to end, in its direction, of the nearest enclosing cell that has any.
class CellCalls {
 public:
  // time: that grows from tensor to tensor.
  void Add(const CellTensorName& name, uint64_t time, DumpedTensor tensor);
  std::vector<DumpedCall> Arranged() const;

 private:
  struct Direction {
    std::string cell;
    bool is_backward = false;
    auto operator<=>(const Direction&) const = default;  // NOLINT(modernize-use-nullptr): it has no pointer
  };
  using Place = std::pair<bool, uint32_t>;  // whether an output, and its number

  std::map<Direction, std::map<Place, std::multimap<uint64_t, DumpedTensor>>> tensors_;  // by time
};

}  // namespace msprobe::server
