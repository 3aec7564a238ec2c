#include "server/format/dump/dump_value.h"

#include "server/format/cat.h"
#include "server/format/json/json_value.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxDimensions = 64;

// Null: the leaf has no member of its own for the key.
JsonText* MemberOf(std::string_view key, DumpLeaf& leaf) {
  switch (key.size()) {
    case 3:
      return key == "Max" ? &leaf.max : key == "Min" ? &leaf.min : key == "md5" ? &leaf.md5 : nullptr;
    case 4:
      return key == "type" ? &leaf.type : key == "Mean" ? &leaf.mean : key == "Norm" ? &leaf.norm : nullptr;
    case 5:
      return key == "dtype" ? &leaf.dtype : key == "shape" ? &leaf.shape : nullptr;
    case 8:
      return key == "extended" ? &leaf.extended : nullptr;
    case 9:
      return key == "data_name" ? &leaf.data_name : nullptr;
    case 13:
      return key == "requires_grad" ? &leaf.requires_grad : nullptr;
    default:
      return nullptr;
  }
}

absl::Status Expected(std::string_view member, std::string_view what, const JsonText& got) {
  return absl::InvalidArgumentError(Cat(member, ": ", what, " is expected, not ", Describe(got)));
}

absl::Status CheckShape(const JsonText& shape) {
  JsonCursor sizes(shape.text);
  if (!shape.is_array() || !sizes.EnterArray()) return Expected("shape", "a list of up to 64 sizes", shape);
  for (size_t count = 0; sizes.NextItem(); ++count) {
    const JsonText size = sizes.Take();
    if (count == kMaxDimensions) return Expected("shape", "a list of up to 64 sizes", shape);
    if (Int64Of(size).value_or(-1) < 0) return Expected("shape", "a size from 0", size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStatistics(const DumpLeaf& leaf) {
  const std::pair<std::string_view, const JsonText&> members[] = {
      {"Max", leaf.max}, {"Min", leaf.min}, {"Mean", leaf.mean}, {"Norm", leaf.norm}};
  for (const auto& [name, value] : members) {
    if (value && !value.is_null() && !value.is_number() && !value.is_bool()) {
      return Expected(name, "a number, a bool or null", value);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTensor(const DumpLeaf& tensor) {
  if (!tensor.dtype.is_string()) return Expected("dtype", "the name of a type", tensor.dtype);
  if (absl::Status status = CheckShape(tensor.shape); !status.ok()) return status;
  if (tensor.requires_grad && !tensor.requires_grad.is_bool()) {
    return Expected("requires_grad", "true or false", tensor.requires_grad);
  }
  if (absl::Status status = CheckStatistics(tensor); !status.ok()) return status;
  if (tensor.data_name && !tensor.data_name.is_string()) {
    return Expected("data_name", "a file's name", tensor.data_name);
  }
  if (tensor.extended && !tensor.extended.is_object()) return Expected("extended", "an object", tensor.extended);
  return absl::OkStatus();
}

JsonText DumpLeaf::Other(std::string_view key) const {
  JsonText found;
  for (const auto& [name, value] : others) {
    if (name == key) found = value;
  }
  return found;
}

void ReadMembers(JsonCursor& json, DumpLeaf& leaf) {
  leaf.type = leaf.dtype = leaf.shape = leaf.max = leaf.min = leaf.mean = leaf.norm = JsonText();
  leaf.requires_grad = leaf.md5 = leaf.data_name = leaf.extended = JsonText();
  leaf.others.clear();
  if (!json.EnterObject()) return;
  std::string_view key;
  while (json.NextKey(key)) {
    if (JsonText* const member = MemberOf(key, leaf)) {
      *member = json.Take();
    } else {
      auto& [name, value] = leaf.others.emplace_back(key, JsonText());
      value = json.Take();
    }
  }
}

DumpKind NextDumpValue(JsonCursor& json, DumpLeaf& leaf) {
  switch (json.Peek()) {
    case JsonType::kNull:
      json.Skip();
      return json.ok() ? DumpKind::kNull : DumpKind::kError;
    case JsonType::kArray:
      return DumpKind::kList;
    case JsonType::kObject:
      break;
    case JsonType::kEnd:
      json.Skip();  // which fails
      return DumpKind::kError;
    default:
      return DumpKind::kBare;
  }
  const JsonCursor::Place begin = json.place();
  ReadMembers(json, leaf);
  if (!json.ok()) return DumpKind::kError;
  // A value of a user's dict is an object, a list or null, so a bare text is never the user's own "type".
  if (leaf.type.is_string()) return DumpKind::kLeaf;
  json.Return(begin);
  return DumpKind::kDict;
}

}  // namespace msprobe::server
