#include "server/analysis/table/dump_value_reader.h"

#include <charconv>
#include <limits>
#include <string>
#include <utility>

#include "server/analysis/table/python_text.h"
#include "server/format/cat.h"
#include "server/format/json/json_value.h"

namespace msprobe::server {
namespace {

bool IsWhole(std::string_view digits) { return digits.find_first_of(".eE") == std::string_view::npos; }

}  // namespace

void DumpValueReader::Read(JsonCursor& json) {
  switch (NextDumpValue(json, leaf_)) {
    case DumpKind::kNull:
      rows_.AddNull();
      return;
    case DumpKind::kLeaf:
      Leaf(json, leaf_);
      return;
    case DumpKind::kList:
      if (!json.EnterArray()) return;
      for (int index = 0; json.NextItem(); ++index) {
        const size_t here = rows_.Enter(index);
        Read(json);
        rows_.Leave(here);
      }
      return;
    case DumpKind::kDict: {
      if (Message(json)) return json.Skip();
      if (!json.EnterObject()) return;
      std::string_view key;
      while (json.NextKey(key)) {
        const size_t here = rows_.Enter(key);
        Read(json);
        rows_.Leave(here);
      }
      return;
    }
    case DumpKind::kBare:  // is no row
      return json.Skip();
    case DumpKind::kError:
      return;
  }
}

bool DumpValueReader::Message(JsonCursor& json) {
  const JsonText type = leaf_.Other("class_type");
  if (!type.is_string() || StringOf(type) != kPointToPoint) return false;
  const JsonText tensor = leaf_.Other("tensor");
  if (!tensor.is_object()) {
    rows_.AddNull();
    return true;
  }
  PointToPoint message;
  if (const JsonText op = leaf_.Other("op"); op.is_string()) message.op = table_.arena.Add(StringOf(op));
  if (const JsonText peer = leaf_.Other("peer"); peer.is_number()) message.peer = Int64Of(peer).value_or(-1);
  JsonCursor inside(tensor.text);
  if (NextDumpValue(inside, leaf_) != DumpKind::kLeaf) {
    rows_.AddNull();
    return true;
  }
  message.row = Leaf(json, leaf_);
  if (!message.op.empty()) rows_.AddMessage(message);
  return true;
}

uint32_t DumpValueReader::Leaf(JsonCursor& json, const DumpLeaf& leaf) {
  if (leaf.is_tensor()) {
    if (const absl::Status status = CheckTensor(leaf); !status.ok()) {
      json.Fail(Cat(rows_.path(), ": ", StdView(status.message())), leaf.shape.text.data());
      return 0;
    }
  }
  Row row;
  if (leaf.dtype.is_string()) row.dtype = table_.Intern(StringOf(leaf.dtype, scratch_));
  if (row.dtype != 0 && leaf.shape.is_array()) row.shape = ShapeOf(leaf.shape);
  row.statistics = {CellOf(leaf.max), CellOf(leaf.min), CellOf(leaf.mean), CellOf(leaf.norm)};
  if (leaf.requires_grad.is_bool()) {
    row.requires_grad = leaf.requires_grad.type == JsonType::kTrue ? Row::Grad::kTrue : Row::Grad::kFalse;
  }
  if (const JsonText& md5 = leaf.md5) {
    saw_checksum_ = true;
    if (md5.is_string()) {
      row.checksum = table_.arena.Add(StringOf(md5, scratch_));
    } else if (!md5.is_null() && !md5.is_array() && !md5.is_object()) {
      row.checksum = table_.arena.Add(PythonText(md5));
    }
  }
  if (leaf.data_name.is_string()) row.data_name = table_.arena.Add(StringOf(leaf.data_name, scratch_));
  if (leaf.extended.is_object()) Extended(leaf.extended, row);
  if (row.dtype != 0) {
    if (leaf.type.is_string()) row.type = table_.text(table_.Intern(StringOf(leaf.type, scratch_)));
    return rows_.AddTensor(row);
  }

  ScalarLeaf scalar;
  const std::string type = leaf.type.is_string() ? StringOf(leaf.type) : std::string();
  scalar.type = type;
  if (const JsonText value = leaf.Other("value")) scalar.value = ValueOf(value);
  if (const JsonText format = leaf.Other("format"); format.is_string()) {  // torch.memory_format
    scalar.format = StringOf(format);
  }
  if (const JsonText ranks = leaf.Other("group_ranks")) {
    const Cell cell = CellOf(ranks);
    if (cell.kind == Cell::Kind::kText) scalar.group_ranks = std::string(cell.view());
  }
  scalar.checksum = row.checksum;
  return rows_.AddScalar(scalar, row);
}

ScalarLeaf::Value DumpValueReader::ValueOf(const JsonText& value) {
  ScalarLeaf::Value read;
  if (value.is_array()) {
    JsonCursor json(value.text);
    size_t items = 0;
    if (json.EnterArray()) {
      for (; json.NextItem(); ++items) json.Skip();
    }
    read.items = items;
  }
  read.cell = CellOf(value);
  read.text = PythonText(value);
  read.python = value.is_string()                     ? "str"
                : value.is_bool()                     ? "bool"
                : value.is_null()                     ? "NoneType"
                : value.is_array()                    ? "list"
                : value.is_object()                   ? "dict"
                : read.cell.kind == Cell::Kind::kReal ? "float"
                                                      : "int";
  return read;
}

void DumpValueReader::Extended(const JsonText& extended, Row& row) {
  ExtendedStatistics found;
  JsonCursor json(extended.text);
  if (!json.EnterObject()) return;
  std::string_view key;
  while (json.NextKey(key)) {
    const std::string name(key);
    const JsonText value = json.Take();
    if (!value.is_number()) continue;
    if (name == "Mean") {
      found.mean = DoubleOf(value);
      found.has_mean = true;
    } else if (name == "Norm") {
      found.norm = DoubleOf(value);
      found.has_norm = true;
    } else if (name == "Variance") {
      found.variance = DoubleOf(value);
      found.has_variance = true;
    } else if (name == "nan_count") {
      found.nan_count = Uint64Of(value).value_or(0);
      found.has_counts = true;
    } else if (name == "positive_inf_count") {
      found.positive_inf_count = Uint64Of(value).value_or(0);
    } else if (name == "negative_inf_count") {
      found.negative_inf_count = Uint64Of(value).value_or(0);
    } else if (name == "zero_count") {
      found.zero_count = Uint64Of(value).value_or(0);
    }
  }
  row.extended = static_cast<int32_t>(table_.extended.size());
  table_.extended.push_back(found);
}

Cell DumpValueReader::CellOf(const JsonText& value) {
  switch (value.type) {
    case JsonType::kNumber:
      if (!IsWhole(value.text)) return Cell::Real(DoubleOf(value));
      if (const std::optional<int64_t> whole = Int64Of(value)) return Cell::Integer(*whole);
      if (const std::optional<uint64_t> whole = Uint64Of(value)) return Cell::Unsigned(*whole);
      return Cell::Text(table_.arena.Add(value.text));
    case JsonType::kNaN:
    case JsonType::kInfinity:
    case JsonType::kMinusInfinity:
      return Cell::Real(DoubleOf(value));
    case JsonType::kTrue:
    case JsonType::kFalse:
      return Cell::Boolean(value.type == JsonType::kTrue);
    case JsonType::kNull:
    case JsonType::kEnd:
      return Cell();
    case JsonType::kString:
      return Cell::Text(table_.arena.Add(StringOf(value, scratch_)));
    case JsonType::kArray:
    case JsonType::kObject:
      break;
  }
  return Cell::Text(table_.arena.Add(PythonText(value)));
}

uint32_t DumpValueReader::ShapeOf(const JsonText& shape) {
  if (const auto known = shapes_.find(AbslView(shape.text)); known != shapes_.end()) return known->second;
  shape_.assign(1, '[');
  JsonCursor sizes(shape.text);
  if (!sizes.EnterArray()) return 0;
  while (sizes.NextItem()) {
    if (shape_.size() > 1) shape_ += ", ";
    shape_ += sizes.Number();
  }
  shape_ += ']';
  return shapes_[std::string(shape.text)] = table_.Intern(shape_);
}

std::string DumpValueReader::PythonText(const JsonText& value) {
  JsonCursor json(value.text);
  return PythonText(json, false);
}

std::string DumpValueReader::PythonText(JsonCursor& json, bool repr) {
  using Type = JsonType;
  switch (json.Peek()) {
    case Type::kString: {
      if (!repr) return std::string(json.String());
      std::string text;
      AppendPythonRepr(json.String(), text);
      return text;
    }
    case Type::kArray: {
      std::string text = "[";
      if (!json.EnterArray()) return text;
      while (json.NextItem()) {
        if (text.size() > 1) text += ", ";
        text += PythonText(json, true);
      }
      text += ']';
      return text;
    }
    case Type::kObject: {
      std::string text = "{";
      if (!json.EnterObject()) return text;
      std::string_view key;
      while (json.NextKey(key)) {
        if (text.size() > 1) text += ", ";
        AppendPythonRepr(key, text);
        text += ": ";
        text += PythonText(json, true);
      }
      text += '}';
      return text;
    }
    case Type::kTrue:
      json.Skip();
      return "True";
    case Type::kFalse:
      json.Skip();
      return "False";
    case Type::kNull:
      json.Skip();
      return "None";
    case Type::kNumber: {
      const JsonText number = json.Take();
      return IsWhole(number.text) ? std::string(number.text) : PythonNumber(DoubleOf(number));
    }
    case Type::kNaN:
      json.Skip();
      return "nan";
    case Type::kInfinity:
      json.Skip();
      return "inf";
    case Type::kMinusInfinity:
      json.Skip();
      return "-inf";
    default:
      json.Fail("a value is expected");
      return "";
  }
}

}  // namespace msprobe::server
