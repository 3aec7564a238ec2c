#include "server/analysis/table/dump_table.h"

#include <zlib.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/format/cat.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {
namespace {

using Type = JsonCursor::Type;

constexpr int kMaxDepth = 400;  // as deep as mindstudio-probe reads
constexpr std::string_view kWays[] = {".input", ".input", ".input", ".parameters", ".output"};

std::optional<int> Section(std::string_view key) {
  if (key == "input_args") return 0;
  if (key == "input_kwargs") return 1;
  if (key == "input") return 2;
  if (key == "parameters") return 3;
  if (key == "output") return 4;
  return std::nullopt;
}

bool HasPart(std::string_view name, std::string_view part) {
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t after = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (after == name.size() || name[after] == '.')) return true;
  }
  return false;
}

std::string_view LastPart(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// "parameters_grad" last, or last but one.
bool IsGradientName(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  if (name.substr(dot + 1) == "parameters_grad") return true;
  return LastPart(name.substr(0, dot)) == "parameters_grad";
}

}  // namespace

absl::Status DumpTableBuilder::AddDump(std::string_view text) {
  if (!IsUtf8(text)) return absl::InvalidArgumentError("the text is not UTF-8");
  JsonCursor json(text);
  std::string task;
  bool has_data = false;
  std::string_view key;
  if (json.EnterObject()) {
    while (json.NextKey(key)) {
      if (key == "data") {
        has_data = true;
        if (json.Peek() == Type::kNull) {
          json.Literal();
        } else {
          Entries(json);
        }
      } else if (key == "task" && json.Peek() == Type::kString) {
        task = json.String();
      } else if (key == "level" && json.Peek() == Type::kString) {
        table_->level = json.String();
      } else if (key == "framework" && json.Peek() == Type::kString) {
        table_->framework = json.String();
      } else {
        json.Skip();
      }
    }
  }
  if (json.ok()) json.ExpectEnd();
  if (!json.ok()) return json.status();
  if (!has_data) return absl::InvalidArgumentError("it has no \"data\": not a dump.json");
  table_->task = task;
  table_->mode = task == "tensor" ? StepTable::Mode::kTensor
                 : saw_checksum_  ? StepTable::Mode::kChecksum
                                  : StepTable::Mode::kStatistics;
  return absl::OkStatus();
}

absl::Status DumpTableBuilder::AddEntry(std::string_view name, std::string_view json_text, uint32_t token) {
  JsonCursor json(json_text);
  const size_t before = table_->entries.size();
  EntryOf(name, json);
  if (table_->entries.size() > before) table_->entries.back().token = token;
  return json.status();
}

void DumpTableBuilder::Entries(JsonCursor& json) {
  if (!json.EnterObject()) return;
  std::string_view key;
  std::string name;
  while (json.NextKey(key)) {
    name = key;
    EntryOf(name, json);
  }
}

void DumpTableBuilder::EntryOf(std::string_view name, JsonCursor& json) {
  path_ = name;
  entry_name_size_ = name.size();
  is_gradient_ = HasPart(name, "parameters_grad");
  if (LastPart(name) == "debug") {
    section_ = 0;
    Value(json, RowState::kDebug, 0);
  } else if (IsGradientName(name)) {
    section_ = kSections - 1;
    Value(json, RowState::kParametersGrad, 0);
  } else if (json.Peek() != Type::kObject) {
    json.Skip();
  } else if (json.EnterObject()) {
    constexpr RowState kStates[] = {RowState::kInput, RowState::kInput, RowState::kInput, RowState::kParameters,
                                    RowState::kOutput};
    std::string_view key;
    while (json.NextKey(key)) {
      const std::optional<int> section = Section(key);
      if (!section) {
        json.Skip();
        continue;
      }
      section_ = static_cast<size_t>(*section);
      path_.append(kWays[section_]);
      Value(json, kStates[section_], 0);
      path_.resize(entry_name_size_);
    }
  }
  FinishEntry(name, 0);
}

void DumpTableBuilder::FinishEntry(std::string_view name, uint32_t token) {
  Entry entry;
  entry.name = table_->arena.Add(name);
  entry.first_row = static_cast<uint32_t>(table_->rows.size());
  entry.token = token;
  for (size_t section = 0; section < kSections; ++section) {
    std::vector<Row>& rows = pending_[section];
    for (auto& [of, message] : pending_messages_) {
      if (of != section) continue;
      table_->messages.push_back(message);
      table_->messages.back().row += static_cast<uint32_t>(table_->rows.size());
    }
    table_->rows.insert(table_->rows.end(), rows.begin(), rows.end());
    rows.clear();
  }
  pending_messages_.clear();
  entry.rows = static_cast<uint32_t>(table_->rows.size()) - entry.first_row;
  table_->entries.push_back(entry);
}

void DumpTableBuilder::Put(const Row& row) { pending_[section_].push_back(row); }

void DumpTableBuilder::NullRow(RowState state) {
  Row row;
  row.name = table_->arena.Add(path_);
  row.state = state;
  row.is_null = true;
  row.type = "NoneType";
  Put(row);
}

void DumpTableBuilder::Value(JsonCursor& json, RowState state, int depth) {
  if (depth > kMaxDepth) return json.Fail(Cat(path_, " is nested over ", kMaxDepth, " deep"));
  switch (json.Peek()) {
    case Type::kNull:
      json.Literal();
      NullRow(state);
      return;
    case Type::kArray: {
      if (!json.EnterArray()) return;
      const size_t size = path_.size();
      for (int index = 0; json.NextItem(); ++index) {
        if (!is_gradient_) {
          char digits[16];
          const char* const end = std::to_chars(digits, digits + sizeof(digits), index).ptr;
          path_ += '.';
          path_.append(digits, static_cast<size_t>(end - digits));
        }
        Value(json, state, depth + 1);
        path_.resize(size);
      }
      return;
    }
    case Type::kObject: {
      if (ObjectLeaf(json, state)) return;
      if (!json.EnterObject()) return;
      const size_t size = path_.size();
      std::string_view key;
      while (json.NextKey(key)) {
        path_ += '.';
        path_ += key;
        Value(json, state, depth + 1);
        path_.resize(size);
      }
      return;
    }
    default:
      json.Skip();  // a bare number or text in an argument's place is no row
  }
}

bool DumpTableBuilder::ObjectLeaf(JsonCursor& json, RowState state) {
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
      message = json.String() == "torch.distributed.P2POp" || message;
    } else if (message && key == "tensor" && kind == Type::kObject && !tensor) {
      // A point to point operation is the row of its tensor.
      found.row = static_cast<uint32_t>(pending_[section_].size());
      tensor = true;
      Leaf(json, state);
    } else if (message && key == "op" && kind == Type::kString) {
      found.op = table_->arena.Add(json.String());
    } else if (message && key == "peer" && kind == Type::kNumber) {
      const Cell peer = CellOf(json);
      found.peer = peer.kind == Cell::Kind::kInteger ? peer.integer : -1;
    } else {
      json.Skip();
    }
  }
  if (!json.ok()) return true;
  if (message) {
    if (!tensor) NullRow(state);
    if (tensor && !found.op.empty()) pending_messages_.emplace_back(section_, found);
    return true;
  }
  json.Return(start);
  if (!leaf) return false;
  Leaf(json, state);
  return true;
}

void DumpTableBuilder::Leaf(JsonCursor& json, RowState state) {
  Row row;
  row.state = state;
  std::string type;
  bool has_dtype = false;
  std::optional<size_t> value;
  std::optional<size_t> said;
  std::optional<size_t> group_ranks;
  if (!json.EnterObject()) return;
  std::string_view key;
  while (json.NextKey(key)) {
    const Type kind = json.Peek();
    if (key == "type" && kind == Type::kString) {
      type = json.String();
    } else if (key == "dtype" && kind == Type::kString) {
      row.dtype = table_->Intern(json.String());
      has_dtype = row.dtype != 0;
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
        row.checksum = table_->arena.Add(PythonText(json, false));
      }
    } else if (key == "data_name" && kind == Type::kString) {
      row.data_name = table_->arena.Add(json.String());
    } else if (key == "extended" && kind == Type::kObject) {
      Extended(json, row);
    } else if (key == "value") {
      value = json.offset();
      json.Skip();
    } else if (key == "format" && kind == Type::kString) {  // torch.memory_format
      said = json.offset();
      json.Skip();
    } else if (key == "group_ranks") {
      group_ranks = json.offset();
      json.Skip();
    } else {
      json.Skip();
    }
  }
  const size_t end = json.offset();
  row.is_tensor = has_dtype;
  row.name = row.data_name.empty() ? table_->arena.Add(path_) : row.data_name.substr(0, row.data_name.rfind('.'));
  const auto text_of = [&](std::optional<size_t> where) -> std::string {
    if (!where) return "None";
    json.Return(*where);
    std::string text = PythonText(json, false);
    json.Return(end);
    return text;
  };
  const auto fill = [&row](Cell cell) { row.statistics.fill(cell); };
  if (!has_dtype && json.ok()) {
    row.type = table_->text(table_->Intern(type));
    if (type == "torch.Size" || type == "slice") said = value;
    if (said) row.said = table_->arena.Add(text_of(said));
    const std::string_view last = LastPart(path_);
    if (type == "torch.Size") {
      row.dtype = table_->Intern(type);
      row.shape = table_->Intern(text_of(value));
    } else if (type == "slice") {
      row.dtype = table_->Intern(type);
      row.shape = table_->Intern(ArrayShape(json, value, end));
    } else if (type == "ellipsis") {
      row.dtype = table_->Intern(type);
      row.shape = table_->Intern("[]");
      fill(Cell::Text(table_->arena.Add(text_of(value))));
    } else if (last == "src" || last == "dst" || last == "group_src" || last == "group_dst" ||
               type == "torch.ProcessGroup") {
      const std::string text = text_of(type == "torch.ProcessGroup" && group_ranks ? group_ranks : value);
      row.dtype = table_->Intern(type);
      row.shape = table_->Intern("[]");
      fill(Cell::Text(table_->arena.Add(text)));
      row.checksum = row.statistics[0].view();
    } else {
      std::string_view python = "NoneType";
      if (value) {
        json.Return(*value);
        const Type kind = json.Peek();
        const Cell cell = CellOf(json);
        json.Return(end);
        python = kind == Type::kString                         ? "str"
                 : kind == Type::kTrue || kind == Type::kFalse ? "bool"
                 : kind == Type::kNull                         ? "NoneType"
                 : kind == Type::kArray                        ? "list"
                 : kind == Type::kObject                       ? "dict"
                 : cell.kind == Cell::Kind::kReal              ? "float"
                                                               : "int";
        fill(cell);
      }
      row.dtype = table_->Intern(Cat("<class '", python, "'>"));
      row.shape = table_->Intern("[]");
    }
  }
  if (!has_dtype && row.checksum.empty() && json.ok()) {
    // mindstudio-probe's checksum of a scalar is that of its text.
    const std::string text = value ? text_of(value) : std::string();
    const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
    row.checksum = table_->arena.Add(absl::StrFormat("%08x", static_cast<uint32_t>(crc)));
  }
  Put(row);
}

// "(3,)" of a list of three: the shape of the value as an array.
std::string DumpTableBuilder::ArrayShape(JsonCursor& json, std::optional<size_t> value, size_t end) {
  if (!value) return "()";
  json.Return(*value);
  std::string shape = "()";
  if (json.Peek() == Type::kArray && json.EnterArray()) {
    size_t items = 0;
    for (; json.NextItem(); ++items) json.Skip();
    shape = Cat("(", items, ",)");
  }
  json.Return(end);
  return shape;
}

void DumpTableBuilder::Extended(JsonCursor& json, Row& row) {
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
  row.extended = static_cast<int32_t>(table_->extended.size());
  table_->extended.push_back(found);
}

}  // namespace msprobe::server
