#include "server/format/storage/structure_summary.h"

#include <array>
#include <utility>

#include "absl/strings/str_split.h"
#include "agent/core/responses/response_detector.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

absl::Status Count(const v1::Node& node, int depth, StructureSummary& summary) {
  if (depth > kDeepestNode) return absl::InvalidArgumentError(Cat("values nest more than ", kDeepestNode, " deep"));
  switch (node.kind_case()) {
    case v1::Node::kList:
      for (const v1::Node& item : node.list().items()) {
        if (absl::Status status = Count(item, depth + 1, summary); !status.ok()) return status;
      }
      return absl::OkStatus();
    case v1::Node::kDict:
      for (const v1::Node::Entry& entry : node.dict().entries()) {
        if (absl::Status status = Count(entry.value(), depth + 1, summary); !status.ok()) return status;
      }
      return absl::OkStatus();
    case v1::Node::kTensor:
      ++summary.leaves;
      return absl::OkStatus();
    case v1::Node::kSlot:
      break;
    case v1::Node::KIND_NOT_SET:
      return absl::InvalidArgumentError("a node is neither list, dict, tensor nor slot");
  }
  switch (node.slot()) {
    case v1::Node::NONE:
      return absl::OkStatus();
    case v1::Node::BOOLEAN:
      ++summary.booleans;
      return absl::OkStatus();
    case v1::Node::INTEGER:
      ++summary.integers;
      return absl::OkStatus();
    case v1::Node::FLOAT:
      ++summary.floats;
      return absl::OkStatus();
    case v1::Node::STRING:
    case v1::Node::JSON:
      ++summary.strings;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(Cat("a slot of unknown kind ", static_cast<int>(node.slot())));
  }
}

void AddTensorSlots(const v1::Node& node, std::vector<const v1::Node::TensorSlot*>& slots) {
  switch (node.kind_case()) {
    case v1::Node::kList:
      for (const v1::Node& item : node.list().items()) AddTensorSlots(item, slots);
      return;
    case v1::Node::kDict:
      for (const v1::Node::Entry& entry : node.dict().entries()) AddTensorSlots(entry.value(), slots);
      return;
    case v1::Node::kTensor:
      slots.push_back(&node.tensor());
      return;
    default:
      return;
  }
}

// Appends the place of the tensor with this number to `path`; lowers the number by those that it has passed.
bool FindTensor(const v1::Node& node, bool indexed, uint32_t& leaf, std::string& path) {
  if (node.has_tensor()) return leaf-- == 0;
  const size_t size = path.size();
  const auto found_in = [&](const v1::Node& child, std::string_view part) {
    if (!part.empty()) path.append(path.empty() ? "" : ".").append(part);
    if (FindTensor(child, indexed, leaf, path)) return true;
    path.resize(size);
    return false;
  };
  for (int i = 0; i < node.list().items_size(); ++i) {
    if (found_in(node.list().items(i), indexed ? Cat(i) : "")) return true;
  }
  for (const v1::Node::Entry& entry : node.dict().entries()) {
    if (found_in(entry.value(), entry.key())) return true;
  }
  return false;
}

absl::Status CheckResponse(const v1::Structure& structure) {
  constexpr std::array<std::pair<std::string_view, v1::Node::Slot>, 4> kFields = {{{"request", v1::Node::STRING},
                                                                                   {"token", v1::Node::INTEGER},
                                                                                   {"top1", v1::Node::FLOAT},
                                                                                   {"mass", v1::Node::FLOAT}}};
  const auto& entries = structure.fields().dict().entries();
  bool fits = entries.size() == 1 || entries.size() == 2 || entries.size() == 4;
  for (int i = 0; fits && i < entries.size(); ++i) {
    const auto& [key, slot] = kFields[static_cast<size_t>(i)];
    fits = entries[i].key() == key && entries[i].value().has_slot() && entries[i].value().slot() == slot;
  }
  return fits ? absl::OkStatus()
              : absl::InvalidArgumentError("a token of a reply has other fields than request, token, top1 and mass");
}

absl::Status AddScalars(const v1::Structure& structure, StructureSummary& summary) {
  for (const v1::Node::Entry& entry : structure.fields().dict().entries()) {
    const bool is_number = entry.value().has_slot() && entry.value().slot() == v1::Node::FLOAT;
    if (entry.key().empty() || entry.key().size() > kLongestSeries || (!is_number && !entry.value().has_tensor())) {
      return absl::InvalidArgumentError(Cat("the scalar \"", entry.key().substr(0, 40), "\" has a name of ",
                                            entry.key().size(), " bytes, allowed are 1 to ", kLongestSeries,
                                            ", or is neither FLOAT nor a tensor"));
    }
    summary.scalars.push_back({entry.key(), !is_number});
  }
  if (summary.name != kPlainScalars) summary.statistics = absl::StrSplit(summary.name, ',');
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StructureSummary> Summarize(const v1::Structure& structure) {
  StructureSummary summary{structure.name(), structure.kind(), structure.direction()};
  if (summary.name.empty()) return absl::InvalidArgumentError("the structure has no name");
  if (summary.name.size() > kLongestName) {
    return absl::InvalidArgumentError(Cat("the structure ", summary.name.substr(0, 40), "... has a name of ",
                                          summary.name.size(), " bytes, at most ", kLongestName));
  }
  if (summary.kind < v1::RECORD_API || summary.kind > v1::RECORD_SCALARS) {
    return absl::InvalidArgumentError(
        Cat("the structure of ", summary.name, " has kind ", static_cast<int>(summary.kind), ", allowed are 1 to 5"));
  }
  if (structure.has_fields() && !structure.fields().has_dict()) {
    return absl::InvalidArgumentError(Cat("the fields of ", summary.name, " are not a dict"));
  }
  if (structure.has_fields()) {
    if (absl::Status status = Count(structure.fields(), 0, summary); !status.ok()) {
      return absl::InvalidArgumentError(Cat("in the structure of ", summary.name, ": ", status.message()));
    }
  }
  if (summary.kind == v1::RECORD_SCALARS && summary.name == core::kResponse) {
    if (absl::Status status = CheckResponse(structure); !status.ok()) return status;
  } else if (summary.kind == v1::RECORD_SCALARS) {
    if (absl::Status status = AddScalars(structure, summary); !status.ok()) return status;
  }
  return summary;
}

absl::StatusOr<SharedStructure> DecodeStructure(std::string_view bytes) {
  auto decoded = std::make_shared<DecodedStructure>();
  if (!decoded->structure.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("the definition of a structure does not parse as one");
  }
  auto summary = Summarize(decoded->structure);
  if (!summary.ok()) return absl::DataLossError(Cat("a stored structure: ", summary.status().message()));
  decoded->summary = *std::move(summary);
  return decoded;
}

std::vector<const v1::Node::TensorSlot*> TensorSlots(const v1::Structure& structure) {
  std::vector<const v1::Node::TensorSlot*> slots;
  AddTensorSlots(structure.fields(), slots);
  return slots;
}

std::string TensorPath(const v1::Structure& structure, uint32_t leaf) {
  std::string path;
  const bool indexed = structure.kind() != v1::RECORD_PARAMETERS_GRAD;
  return FindTensor(structure.fields(), indexed, leaf, path) ? path : "";
}

std::string FullName(std::string_view name, v1::RecordKind kind, v1::Direction direction, uint32_t count) {
  std::string_view way = direction == v1::DIRECTION_BACKWARD ? "backward" : "forward";
  switch (kind) {
    case v1::RECORD_MODULE:
      return Cat(name, ".", way, ".", count);
    case v1::RECORD_PARAMETERS_GRAD:
      return Cat(name, ".parameters_grad.", count);
    case v1::RECORD_DEBUG:
      return Cat(name, ".", count, ".debug");
    default:
      return Cat(name, ".", count, ".", way);
  }
}

}  // namespace msprobe::server
