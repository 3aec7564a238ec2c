#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// What one fragment of a structure takes from the columns of its block.
struct StructureSummary {
  std::string name;
  v1::RecordKind kind = v1::RECORD_KIND_UNSPECIFIED;
  v1::Direction direction = v1::DIRECTION_FORWARD;
  uint32_t leaves = 0;
  uint32_t booleans = 0;
  uint32_t integers = 0;
  uint32_t floats = 0;
  uint32_t strings = 0;  // STRING and JSON slots together
};

inline constexpr size_t kLongestName = 4096;  // bytes of a structure's name
inline constexpr int kDeepestNode = 32;       // lists and dicts around a value

// InvalidArgument: no name or one that is too long, no kind, fields that are not a dict or too deep, a node that is
// nothing.
absl::StatusOr<StructureSummary> Summarize(const v1::Structure& structure);

// A structure and its summary; readers of one run share it.
struct DecodedStructure {
  v1::Structure structure;
  StructureSummary summary;
};
using SharedStructure = std::shared_ptr<const DecodedStructure>;

// DataLoss: the bytes of a definition that are not a structure, or one that Summarize refuses.
absl::StatusOr<SharedStructure> DecodeStructure(std::string_view bytes);

// In the order in which a fragment takes the columns of its leaves. Borrowed from the structure.
std::vector<const v1::Node::TensorSlot*> TensorSlots(const v1::Structure& structure);

// {name}.{count}.{direction}, {name}.{direction}.{count}, {name}.parameters_grad.{count} or {name}.{count}.debug.
std::string FullName(std::string_view name, v1::RecordKind kind, v1::Direction direction, uint32_t count);

}  // namespace msprobe::server
