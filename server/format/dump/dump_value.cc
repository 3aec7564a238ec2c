#include "server/format/dump/dump_value.h"

namespace msprobe::server {
namespace {

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

}  // namespace

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
