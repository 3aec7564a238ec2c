#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The number of values that one fragment of a structure takes from each column of its block.
struct StructureSummary {
  std::string name;
  v1::RecordKind kind = v1::RECORD_KIND_UNSPECIFIED;
  v1::Direction direction = v1::DIRECTION_FORWARD;
  uint32_t leaves = 0;
  uint32_t booleans = 0;
  uint32_t integers = 0;
  uint32_t floats = 0;
  uint32_t strings = 0;  // STRING and JSON slots together
  // Of RECORD_SCALARS: the entries of its fields, in order.
  struct Scalar {
    std::string name;
    bool is_tensor = false;  // takes a leaf; else one of Block.floats
  };
  std::vector<Scalar> scalars = {};
  // Of RECORD_SCALARS: what its name says of its tensors. Empty: each is one number.
  std::vector<std::string> statistics = {};
};

inline constexpr size_t kLongestName = 4096;    // bytes of a structure's name
inline constexpr int kDeepestNode = 32;         // lists and dicts around a value
inline constexpr size_t kLongestSeries = 1024;  // bytes of a series' name
// The name of records of RECORD_SCALARS whose tensors are numbers.
inline constexpr std::string_view kPlainScalars = "scalars";

// InvalidArgument: the name is missing or too long, the kind is missing, the fields are not a dict or too deep, a node
// has no kind, one of RECORD_SCALARS is neither FLOAT nor tensor or has no name, or a token of a reply has other
// fields.
absl::StatusOr<StructureSummary> Summarize(const v1::Structure& structure);

// A structure and its summary, shared by all readers of a run.
struct DecodedStructure {
  v1::Structure structure;
  StructureSummary summary;
};
using SharedStructure = std::shared_ptr<const DecodedStructure>;

// Decodes the bytes of a definition. DataLoss: they are not a structure, or Summarize refuses it.
absl::StatusOr<SharedStructure> DecodeStructure(std::string_view bytes);

// The structure's tensors in the order of a fragment's leaves. Borrowed from the structure.
std::vector<const v1::Node::TensorSlot*> TensorSlots(const v1::Structure& structure);

// The place of one of these tensors, as names of rows have it: "output.0", "input_args.1.key". In a record of gradients
// of parameters indexes are left out. Empty: there is no such tensor.
std::string TensorPath(const v1::Structure& structure, uint32_t leaf);

// {name}.{count}.{direction}, {name}.{direction}.{count}, {name}.parameters_grad.{count} or {name}.{count}.debug.
std::string FullName(std::string_view name, v1::RecordKind kind, v1::Direction direction, uint32_t count);

}  // namespace msprobe::server
