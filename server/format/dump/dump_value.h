#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/format/json/json_cursor.h"

namespace msprobe::server {

// An object with a "type": a tensor, or an argument of another kind. Members are as they stand in the text, which is
// borrowed; CheckTensor judges a tensor's. Where a key stands twice, its last value counts, as in Python.
struct DumpLeaf {
  JsonText type, dtype, shape;
  JsonText max, min, mean, norm;
  JsonText requires_grad, md5, data_name, extended;
  // All other members in their order, such as the "value" of a scalar.
  std::vector<std::pair<std::string, JsonText>> others;

  // No value: there is no such member among the others.
  JsonText Other(std::string_view key) const;

  bool is_tensor() const { return dtype && shape; }
};

// What every reader refuses of a tensor: dtype, shape, statistics, requires_grad, data_name, and extended as a whole.
// InvalidArgument: "shape: a list of up to 64 sizes is expected, not the text "abc"".
absl::Status CheckTensor(const DumpLeaf& tensor);
// Of Max, Min, Mean and Norm alone, which "extended" has too.
absl::Status CheckStatistics(const DumpLeaf& leaf);

enum class DumpKind : uint8_t {
  kNull,
  kList,
  kDict,
  kLeaf,
  kBare,   // a string, number or bool in the place of an argument
  kError,  // the cursor says which
};

// Looks at the next value of an entry. A null and a leaf are taken, the latter into `leaf`; a list, a dict and a bare
// value are left for the cursor to enter or take. After a dict `leaf` has its members.
DumpKind NextDumpValue(JsonCursor& json, DumpLeaf& leaf);

// Reads the members of an object, whether it has a "type" or not.
void ReadMembers(JsonCursor& json, DumpLeaf& leaf);

}  // namespace msprobe::server
