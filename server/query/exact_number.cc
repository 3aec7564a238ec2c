#include "server/query/exact_number.h"

namespace msprobe::server {

std::optional<v1::TensorLeaf::Number> ExactNumber(const Cell& cell) {
  if (!cell.is_whole()) return std::nullopt;
  v1::TensorLeaf::Number number;
  if (cell.kind == Cell::Kind::kUnsigned) {
    number.set_unsigned_integer(cell.unsigned_integer);
  } else {
    number.set_integer(cell.integer);
  }
  return number;
}

}  // namespace msprobe::server
