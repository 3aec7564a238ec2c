#include "server/analysis/table/table_layout.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "server/analysis/table/dump_value_reader.h"
#include "server/analysis/table/row_builder.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/storage/fragment_decoder.h"
#include "server/format/storage/record_assembler.h"
#include "server/format/tensor_file/tensor_file_name.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kLayoutFlags = v1::LEAF_PAYLOAD;

class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
  void Add(const void* bytes, size_t size) { XXH3_128bits_update(state_.get(), bytes, size); }
  void Word(uint64_t word) { Add(&word, sizeof(word)); }
  void Text(std::string_view text) {
    Word(text.size());
    Add(text.data(), text.size());
  }
  std::array<uint64_t, 2> Finish() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {hash.low64, hash.high64};
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// Makes a layout of where the numbers of records stand.
class Maker {
 public:
  explicit Maker(const v1::CaptureSettings& settings)
      : settings_(settings), layout_(std::make_shared<TableLayout>()), rows_(&layout_->table), json_(&rows_) {}

  absl::StatusOr<std::shared_ptr<const TableLayout>> Make(const StepBlocks& blocks, StructureLookup structure) {
    Describe();
    RecordAssembler assembler(0, {}, [&](uint64_t id) {
      auto decoded = structure(id);
      if (decoded.ok()) layout_->structures.push_back(*decoded);  // slots and names are borrowed from it
      return decoded;
    });
    for (const auto& block : blocks) {
      if (absl::Status status = assembler.Add(block); !status.ok()) return status;
    }
    layout_->leaves.resize(assembler.places().leaves);
    layout_->integers.resize(assembler.places().integers);
    layout_->floats.resize(assembler.places().floats);
    assembler.ForEachPlaced([&](const v1::Record& head, const PlacedValue& fields, uint64_t stack_fragment) {
      AddRecord(head, fields, stack_fragment);
    });
    assembler.ForEachEnd([&](uint64_t ordinal, uint64_t first_leaf, uint32_t leaves) {
      layout_->ends.emplace(ordinal, TableLayout::End{first_leaf, leaves});
    });
    absl::flat_hash_set<std::string_view> names;
    names.reserve(layout_->table.rows.size());
    for (const Row& row : layout_->table.rows) layout_->unique = names.insert(row.name).second && layout_->unique;
    return layout_;
  }

 private:
  using Kind = PlacedValue::Kind;

  void Describe() {
    StepTable& table = layout_->table;
    table.framework = settings_.framework().empty() ? "pytorch" : settings_.framework();
    table.task = settings_.task();
    table.level = settings_.level();
    table.debug = settings_.level() == "debug";
    layout_->unique = true;
    layout_->crc32 = settings_.summary_mode() == "md5";
    layout_->xor_checksum = settings_.summary_mode() == "xor";
    table.mode = settings_.task() == "tensor"              ? StepTable::Mode::kTensor
                 : layout_->crc32 || layout_->xor_checksum ? StepTable::Mode::kChecksum
                                                           : StepTable::Mode::kStatistics;
    file_suffix_ = table.framework == "mindspore" ? ".npy" : ".pt";
  }

  void AddRecord(const v1::Record& head, const PlacedValue& fields, uint64_t stack_fragment) {
    StepTable& table = layout_->table;
    if ((head.flags() & v1::FRAGMENT_CONSTRUCT_ONLY) != 0 || (head.kind() == v1::RECORD_DEBUG) != table.debug) {
      return;
    }
    full_name_ = head.full_name();
    rows_.Begin(full_name_);
    if (rows_.is_whole()) {
      AddWhole(fields, head.kind());
    } else {
      AddSections(fields);
    }
    rows_.Finish(head.token());
    table.entries.back().parent = table.arena.Add(head.parent());
    layout_->stack_of.push_back(stack_fragment);
  }

  void AddWhole(const PlacedValue& fields, v1::RecordKind kind) {
    rows_.Open(RowBuilder::kWhole);
    if (kind != v1::RECORD_DEBUG) {
      Add(fields);
    } else if (fields.items.size() == 1) {
      // Its only field, which has no part in names of rows.
      path_.emplace_back(fields.items[0].key);
      Add(fields.items[0].value);
      path_.pop_back();
    } else {
      rows_.AddNull();
    }
    rows_.Close();
  }

  // In the order of rows, whatever the order of fields.
  void AddSections(const PlacedValue& fields) {
    for (int section = RowBuilder::kInputArgs; section < RowBuilder::kWhole; ++section) {
      for (const auto& [key, value] : fields.items) {
        if (RowBuilder::SectionOf(key) != static_cast<RowBuilder::Section>(section)) continue;
        rows_.Open(static_cast<RowBuilder::Section>(section));
        path_.emplace_back(key);
        Add(value);
        path_.pop_back();
        rows_.Close();
      }
    }
  }

  void Add(const PlacedValue& value) {
    switch (value.kind) {
      case Kind::kNone:
        rows_.AddNull();
        return;
      case Kind::kBoolean:
        AddScalar("bool", Cell::Boolean(value.boolean), value.boolean ? "True" : "False");
        return;
      case Kind::kInteger:
        layout_->integers[value.place] = Numberless(AddScalar("int", Cell::Integer(0), ""));
        return;
      case Kind::kReal:
        layout_->floats[value.place] = Numberless(AddScalar("float", Cell::Real(0), ""));
        return;
      case Kind::kText:
        AddScalar("str", Cell::Text(layout_->table.arena.Add(*value.text)), *value.text);
        return;
      case Kind::kJson:
        AddJson(*value.text);
        return;
      case Kind::kTensor:
        AddTensor(value);
        return;
      case Kind::kList:
        for (size_t i = 0; i < value.items.size(); ++i) {
          const size_t here = rows_.Enter(static_cast<int>(i));
          path_.push_back(Cat(i));
          Add(value.items[i].value);
          path_.pop_back();
          rows_.Leave(here);
        }
        return;
      case Kind::kDict:
        if (AddPointToPoint(value)) return;
        for (const auto& [key, item] : value.items) {
          const size_t here = rows_.Enter(key);
          path_.emplace_back(key);
          Add(item);
          path_.pop_back();
          rows_.Leave(here);
        }
    }
  }

  uint32_t AddScalar(std::string_view type, Cell cell, std::string text) {
    ScalarLeaf leaf;
    leaf.type = type;
    leaf.value = ScalarLeaf::Value{type, cell, std::move(text), std::nullopt};
    return rows_.AddScalar(leaf, Row());
  }

  // Of a row whose value differs from step to step: it keeps its kind, with 0 for the number.
  TableLayout::Scalar Numberless(uint32_t row) {
    Row& of = layout_->table.rows[row];
    of.checksum = {};
    return {static_cast<int32_t>(row), of.statistics[0].kind == Cell::Kind::kText};
  }

  // What is no JSON is null in an export, too.
  void AddJson(std::string_view text) {
    JsonCursor check(text);
    check.Skip();
    check.ExpectEnd();
    if (!check.ok()) {
      rows_.AddNull();
      return;
    }
    JsonCursor json(text);
    json_.Read(json);
  }

  uint32_t AddTensor(const PlacedValue& value) {
    StepTable& table = layout_->table;
    const v1::Node::TensorSlot& slot = *value.slot;
    TableLayout::Leaf& leaf = layout_->leaves[value.place];
    const std::string dtype = DTypeName(slot);
    leaf.slot = &slot;
    leaf.ordinal = value.ordinal;
    leaf.dtype = DTypeOfName(dtype);
    leaf.rules = DumpRulesOf(slot.type(), leaf.dtype, settings_.high_precision());
    leaf.numpy = slot.type() == "numpy.ndarray";
    if (dtype.empty()) {  // no tensor to those who read a dump
      ScalarLeaf unknown;
      unknown.type = slot.type();
      return rows_.AddScalar(unknown, Row());
    }
    Row row;
    row.dtype = table.Intern(dtype);
    row.type = table.text(table.Intern(slot.type()));
    if (slot.type().starts_with("torch.")) {
      row.requires_grad = slot.requires_grad() ? Row::Grad::kTrue : Row::Grad::kFalse;
    }
    if (value.has_payload) row.data_name = table.arena.Join({TensorFileName(full_name_, path_), file_suffix_});
    row.extended = static_cast<int32_t>(table.extended.size());
    table.extended.emplace_back();
    const uint32_t at = rows_.AddTensor(row);
    leaf.row = static_cast<int32_t>(at);
    return at;
  }

  // A send or receive that is an argument: the row of its tensor.
  bool AddPointToPoint(const PlacedValue& value) {
    const auto json = [&](std::string_view key) -> std::optional<JsonCursor> {
      for (const auto& [name, item] : value.items) {
        if (name == key && item.kind == Kind::kJson) return JsonCursor(*item.text);
      }
      return std::nullopt;
    };
    std::optional<JsonCursor> type = json("class_type");
    if (!type || type->Peek() != JsonCursor::Type::kString || type->String() != kPointToPoint) return false;
    PointToPoint message;
    if (auto op = json("op"); op && op->Peek() == JsonCursor::Type::kString) {
      message.op = layout_->table.arena.Add(op->String());
    }
    if (auto peer = json("peer"); peer && peer->Peek() == JsonCursor::Type::kNumber) {
      const std::string_view digits = peer->Number();
      const char* const end = digits.data() + digits.size();
      if (std::from_chars(digits.data(), end, message.peer).ptr != end) message.peer = -1;
    }
    for (const auto& [name, item] : value.items) {
      if (name != "tensor" || item.kind != Kind::kTensor) continue;
      path_.emplace_back(name);
      message.row = AddTensor(item);
      path_.pop_back();
      if (!message.op.empty()) rows_.AddMessage(message);
      return true;
    }
    rows_.AddNull();
    return true;
  }

  const v1::CaptureSettings& settings_;
  const std::shared_ptr<TableLayout> layout_;
  RowBuilder rows_;
  DumpValueReader json_;
  std::string_view file_suffix_;
  std::string full_name_;          // of the record at hand
  std::vector<std::string> path_;  // from its fields to the value at hand
};

}  // namespace

TableLayout::Key LayoutKey(const v1::CaptureSettings& settings, const StepBlocks& blocks) {
  Hash fragments;
  Hash leaves;
  Hash texts;
  for (const std::string* text :
       {&settings.framework(), &settings.task(), &settings.level(), &settings.summary_mode()}) {
    texts.Text(*text);
  }
  texts.Word(settings.high_precision() ? 1 : 0);
  std::vector<uint64_t> words;
  std::vector<uint8_t> masks;
  std::vector<uint64_t> parents;
  uint64_t booleans = 0;
  texts.Word(std::any_of(blocks.begin(), blocks.end(), [](const auto& block) { return block->edge_size() != 0; }));
  for (const auto& block : blocks) {
    words.clear();
    parents.assign(1, 0);
    for (const std::string& parent : block->parents()) parents.push_back(XXH3_64bits(parent.data(), parent.size()));
    uint64_t ordinal = 0;
    const int count = std::min({block->structure_size(), block->count_size(), block->ordinal_delta_size(),
                                block->fragment_flags_size(), block->stack_size(), block->parent_size()});
    words.reserve(static_cast<size_t>(count) * 5);
    for (int i = 0; i < count; ++i) {
      ordinal += static_cast<uint64_t>(block->ordinal_delta(i));
      const uint32_t structure = block->structure(i);
      const uint32_t parent = block->parent(i);
      words.push_back(structure < static_cast<uint32_t>(block->structures_size())
                          ? block->structures(static_cast<int>(structure))
                          : 0);
      words.push_back(uint64_t{block->count(i)} << 32 | block->token());
      words.push_back(ordinal);
      words.push_back(uint64_t{block->fragment_flags(i)} << 1 | (block->stack(i) != 0 ? 1 : 0));
      words.push_back(parent < parents.size() ? parents[parent] : 0);
    }
    fragments.Add(words.data(), words.size() * sizeof(words[0]));
    masks.clear();
    masks.reserve(static_cast<size_t>(block->leaf_flags_size()));
    for (uint32_t flags : block->leaf_flags()) masks.push_back(static_cast<uint8_t>(flags & kLayoutFlags));
    leaves.Add(masks.data(), masks.size());
    for (const std::string& text : block->strings()) texts.Text(text);
    for (bool value : block->booleans()) texts.Word(++booleans << 1 | (value ? 1 : 0));
  }
  Hash all;
  for (const Hash* each : {&fragments, &leaves, &texts}) {
    const auto part = each->Finish();
    all.Add(part.data(), sizeof(part));
  }
  return all.Finish();
}

absl::StatusOr<std::shared_ptr<const TableLayout>> MakeTableLayout(const v1::CaptureSettings& settings,
                                                                   const StepBlocks& blocks,
                                                                   StructureLookup structure) {
  return Maker(settings).Make(blocks, structure);
}

}  // namespace msprobe::server
