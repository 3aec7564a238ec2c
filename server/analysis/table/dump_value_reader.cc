#include "server/analysis/table/dump_value_reader.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <utility>

#include "server/analysis/table/python_text.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Type = JsonCursor::Type;

constexpr int kMaxDepth = 400;  // as deep as mindstudio-probe reads

double RealOf(std::string_view digits) {
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) {
    // Underflow or overflow: what strtod says.
    return std::strtod(std::string(digits).c_str(), nullptr);
  }
  return value;
}

}  // namespace

void DumpValueReader::Value(JsonCursor& json, int depth) {
  if (depth > kMaxDepth) return json.Fail(Cat(rows_.path(), " is nested over ", kMaxDepth, " deep"));
  switch (json.Peek()) {
    case Type::kNull:
      json.Literal();
      rows_.AddNull();
      return;
    case Type::kArray:
      if (!json.EnterArray()) return;
      for (int index = 0; json.NextItem(); ++index) {
        const size_t here = rows_.Enter(index);
        Value(json, depth + 1);
        rows_.Leave(here);
      }
      return;
    case Type::kObject: {
      if (ObjectLeaf(json)) return;
      if (!json.EnterObject()) return;
      std::string_view key;
      while (json.NextKey(key)) {
        const size_t here = rows_.Enter(key);
        Value(json, depth + 1);
        rows_.Leave(here);
      }
      return;
    }
    default:
      json.Skip();  // a bare number or text in an argument's place is no row
  }
}

bool DumpValueReader::ObjectLeaf(JsonCursor& json) {
  // A leaf has a "type" that is a text, nearly always first.
  const size_t start = json.offset();
  if (!json.EnterObject()) return true;
  std::string_view key;
  bool leaf = false;
  bool message = false;
  bool tensor = false;
  PointToPoint found;
  while (!leaf && json.NextKey(key)) {
    const Type kind = json.Peek();
    if (key == "type" && kind == Type::kString && !message) {
      leaf = true;
    } else if (key == "class_type" && kind == Type::kString) {
      message = json.String() == kPointToPoint || message;
    } else if (message && key == "tensor" && kind == Type::kObject && !tensor) {
      // A point to point operation is the row of its tensor.
      tensor = true;
      found.row = Leaf(json);
    } else if (message && key == "op" && kind == Type::kString) {
      found.op = table_.arena.Add(json.String());
    } else if (message && key == "peer" && kind == Type::kNumber) {
      const Cell peer = CellOf(json);
      found.peer = peer.kind == Cell::Kind::kInteger ? peer.integer : -1;
    } else {
      json.Skip();
    }
  }
  if (!json.ok()) return true;
  if (message) {
    if (!tensor) rows_.AddNull();
    if (tensor && !found.op.empty()) rows_.AddMessage(found);
    return true;
  }
  json.Return(start);
  if (!leaf) return false;
  Leaf(json);
  return true;
}

uint32_t DumpValueReader::Leaf(JsonCursor& json) {
  Row row;
  std::string type;
  ScalarLeaf scalar;
  std::optional<size_t> value;
  if (!json.EnterObject()) return 0;
  std::string_view key;
  while (json.NextKey(key)) {
    const Type kind = json.Peek();
    if (key == "type" && kind == Type::kString) {
      type = json.String();
    } else if (key == "dtype" && kind == Type::kString) {
      row.dtype = table_.Intern(json.String());
    } else if (key == "shape" && kind == Type::kArray) {
      row.shape = ShapeOf(json);
    } else if (key == "Max") {
      row.statistics[0] = CellOf(json);
    } else if (key == "Min") {
      row.statistics[1] = CellOf(json);
    } else if (key == "Mean") {
      row.statistics[2] = CellOf(json);
    } else if (key == "Norm") {
      row.statistics[3] = CellOf(json);
    } else if (key == "requires_grad" && (kind == Type::kTrue || kind == Type::kFalse)) {
      row.requires_grad = kind == Type::kTrue ? Row::Grad::kTrue : Row::Grad::kFalse;
      json.Literal();
    } else if (key == "md5") {
      saw_checksum_ = true;
      if (kind == Type::kNull || kind == Type::kArray || kind == Type::kObject) {
        json.Skip();
      } else {
        row.checksum = table_.arena.Add(PythonText(json, false));
      }
    } else if (key == "data_name" && kind == Type::kString) {
      row.data_name = table_.arena.Add(json.String());
    } else if (key == "extended" && kind == Type::kObject) {
      Extended(json, row);
    } else if (key == "value") {
      value = json.offset();
      json.Skip();
    } else if (key == "format" && kind == Type::kString) {  // torch.memory_format
      scalar.format = PythonText(json, false);
    } else if (key == "group_ranks") {
      const Cell ranks = CellOf(json);
      if (ranks.kind == Cell::Kind::kText) scalar.group_ranks = std::string(ranks.view());
    } else {
      json.Skip();
    }
  }
  if (row.dtype != 0) return rows_.AddTensor(row);
  const size_t end = json.offset();
  if (value && json.ok()) {
    json.Return(*value);
    scalar.value = ValueOf(json);
    json.Return(end);
  }
  scalar.type = type;
  scalar.checksum = row.checksum;
  return rows_.AddScalar(scalar, row);
}

ScalarLeaf::Value DumpValueReader::ValueOf(JsonCursor& json) {
  const size_t start = json.offset();
  const Type kind = json.Peek();
  ScalarLeaf::Value value;
  if (kind == Type::kArray && json.EnterArray()) {
    size_t items = 0;
    for (; json.NextItem(); ++items) json.Skip();
    value.items = items;
    json.Return(start);
  }
  value.cell = CellOf(json);
  json.Return(start);
  value.text = PythonText(json, false);
  value.python = kind == Type::kString                         ? "str"
                 : kind == Type::kTrue || kind == Type::kFalse ? "bool"
                 : kind == Type::kNull                         ? "NoneType"
                 : kind == Type::kArray                        ? "list"
                 : kind == Type::kObject                       ? "dict"
                 : value.cell.kind == Cell::Kind::kReal        ? "float"
                                                               : "int";
  return value;
}

void DumpValueReader::Extended(JsonCursor& json, Row& row) {
  ExtendedStatistics found;
  if (!json.EnterObject()) return;
  std::string_view key;
  while (json.NextKey(key)) {
    const Type kind = json.Peek();
    if (kind == Type::kObject || kind == Type::kArray || kind == Type::kString || kind == Type::kNull) {
      json.Skip();
      continue;
    }
    const std::string name(key);
    const Cell cell = CellOf(json);
    if (name == "Mean") {
      found.mean = cell.number();
      found.has_mean = true;
    } else if (name == "Norm") {
      found.norm = cell.number();
      found.has_norm = true;
    } else if (name == "Variance") {
      found.variance = cell.number();
      found.has_variance = true;
    } else if (name == "nan_count") {
      found.nan_count = static_cast<uint64_t>(cell.number());
      found.has_counts = true;
    } else if (name == "positive_inf_count") {
      found.positive_inf_count = static_cast<uint64_t>(cell.number());
    } else if (name == "negative_inf_count") {
      found.negative_inf_count = static_cast<uint64_t>(cell.number());
    } else if (name == "zero_count") {
      found.zero_count = static_cast<uint64_t>(cell.number());
    }
  }
  row.extended = static_cast<int32_t>(table_.extended.size());
  table_.extended.push_back(found);
}

Cell DumpValueReader::CellOf(JsonCursor& json) {
  switch (json.Peek()) {
    case Type::kNumber: {
      const std::string_view digits = json.Number();
      if (digits.find_first_of(".eE") == std::string_view::npos) {
        int64_t value = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (error == std::errc()) return Cell::Integer(value);
        return Cell::Text(table_.arena.Add(digits));
      }
      return Cell::Real(RealOf(digits));
    }
    case Type::kTrue:
      json.Literal();
      return Cell::Boolean(true);
    case Type::kFalse:
      json.Literal();
      return Cell::Boolean(false);
    case Type::kNull:
      json.Literal();
      return Cell();
    case Type::kNaN:
      json.Literal();
      return Cell::Real(std::numeric_limits<double>::quiet_NaN());
    case Type::kInfinity:
      json.Literal();
      return Cell::Real(std::numeric_limits<double>::infinity());
    case Type::kMinusInfinity:
      json.Literal();
      return Cell::Real(-std::numeric_limits<double>::infinity());
    case Type::kString:
      return Cell::Text(table_.arena.Add(json.String()));
    default: {
      const size_t start = json.offset();
      json.Skip();  // bounds the depth
      if (!json.ok()) return Cell();
      const size_t end = json.offset();
      json.Return(start);
      const Cell cell = Cell::Text(table_.arena.Add(PythonText(json, false)));
      json.Return(end);
      return cell;
    }
  }
}

uint32_t DumpValueReader::ShapeOf(JsonCursor& json) {
  shape_.assign(1, '[');
  if (!json.EnterArray()) return 0;
  while (json.NextItem()) {
    if (shape_.size() > 1) shape_ += ", ";
    shape_ += json.Number();
  }
  shape_ += ']';
  return table_.Intern(shape_);
}

std::string DumpValueReader::PythonText(JsonCursor& json, bool repr) {
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
      json.Literal();
      return "True";
    case Type::kFalse:
      json.Literal();
      return "False";
    case Type::kNull:
      json.Literal();
      return "None";
    case Type::kNumber: {
      const std::string_view digits = json.Number();
      if (digits.find_first_of(".eE") == std::string_view::npos) return std::string(digits);
      return PythonNumber(RealOf(digits));
    }
    case Type::kNaN:
      json.Literal();
      return "nan";
    case Type::kInfinity:
      json.Literal();
      return "inf";
    case Type::kMinusInfinity:
      json.Literal();
      return "-inf";
    default:
      json.Fail("a value is expected");
      return "";
  }
}

}  // namespace msprobe::server
