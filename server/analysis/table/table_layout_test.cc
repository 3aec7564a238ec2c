#include "server/analysis/table/table_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "server/analysis/table/dump_reader.h"
#include "server/analysis/table/table_layouts.h"
#include "server/exporter/record_json.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/json/json_writer.h"
#include "server/format/storage/record_assembler.h"
#include "server/format/storage/scripted_block.h"
#include "server/format/tensor_file/tensor_file_name.h"

namespace msprobe::server {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string CellText(const Cell& cell) {
  switch (cell.kind) {
    case Cell::Kind::kNone:
      return "none";
    case Cell::Kind::kReal:
      return std::isnan(cell.real) ? "real nan" : Cat("real ", std::bit_cast<uint64_t>(cell.real));
    case Cell::Kind::kInteger:
      return Cat("integer ", cell.integer);
    case Cell::Kind::kUnsigned:
      return Cat("unsigned ", cell.unsigned_integer);
    case Cell::Kind::kBoolean:
      return Cat("boolean ", cell.integer);
    case Cell::Kind::kText:
      return Cat("text ", cell.view());
  }
  return "";
}

std::string RowText(const StepTable& table, const Row& row) {
  std::string text =
      Cat(row.name, " file=", row.data_name, " dtype=", table.text(row.dtype), " shape=", table.text(row.shape),
          " type=", row.type, " said=", row.said, " state=", static_cast<int>(row.state),
          " grad=", static_cast<int>(row.requires_grad), " tensor=", row.is_tensor, " null=", row.is_null);
  // Without checksums a scalar's is that of its text in a dump, and not made for a stored step.
  if (table.mode == StepTable::Mode::kChecksum) text += Cat(" md5=", row.checksum);
  for (const Cell& cell : row.statistics) text += Cat(" ", CellText(cell));
  if (row.extended < 0) return text;
  const ExtendedStatistics& more = table.extended[static_cast<size_t>(row.extended)];
  if (more.has_mean) text += Cat(" mean=", CellText(Cell::Real(more.mean)));
  if (more.has_norm) text += Cat(" norm=", CellText(Cell::Real(more.norm)));
  if (more.has_variance) text += Cat(" variance=", CellText(Cell::Real(more.variance)));
  if (more.has_counts) {
    text += Cat(" nan=", more.nan_count, " +inf=", more.positive_inf_count, " -inf=", more.negative_inf_count,
                " zero=", more.zero_count);
  }
  return text;
}

std::vector<std::string> TableText(const StepTable& table) {
  std::vector<std::string> lines;
  for (const Entry& entry : table.entries) {
    lines.push_back(Cat(entry.name, " under ", entry.parent, " token ", entry.token));
    for (uint32_t i = 0; i < entry.rows; ++i) {
      lines.push_back(Cat("  ", RowText(table, table.rows[entry.first_row + i])));
    }
  }
  for (const PointToPoint& message : table.messages) {
    lines.push_back(Cat(table.rows[message.row].name, " is ", message.op, " with ", message.peer));
  }
  return lines;
}

// A step of random records: every kind of slot, dtype, statistics and nesting, in several blocks.
class RandomStep {
 public:
  RandomStep(uint32_t seed, bool debug) : random_(seed) {
    for (int i = 0; i < 3; ++i) {
      StartBlock();
      for (int record = 0; record < 6; ++record) AddRecord(debug);
      blocks_.push_back(std::make_shared<v1::Block>(block_));
    }
  }

  const StepBlocks& blocks() const { return blocks_; }

  absl::StatusOr<SharedStructure> Find(uint64_t id) const {
    const auto found = structures_.find(id);
    if (found == structures_.end()) return absl::NotFoundError("no structure");
    return DecodeStructure(found->second.SerializeAsString());
  }

  // The same step with other numbers.
  StepBlocks WithOtherNumbers() {
    StepBlocks others;
    for (const auto& block : blocks_) {
      v1::Block other = *block;
      for (float& value : *other.mutable_narrow()) value += 1;
      for (double& value : *other.mutable_wide()) value = -value;
      for (int64_t& value : *other.mutable_integers()) value ^= 5;
      for (double& value : *other.mutable_floats()) value = value * 2 + 1;
      for (uint32_t& value : *other.mutable_crc32()) value += 7;
      for (uint64_t& value : *other.mutable_xor64()) value += 7;
      for (uint64_t& value : *other.mutable_zero_count()) value += 7;
      others.push_back(std::make_shared<v1::Block>(std::move(other)));
    }
    return others;
  }

 private:
  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool Chance(uint32_t percent) { return Pick(100) < percent; }

  void StartBlock() {
    block_.Clear();
    last_ordinal_ = 0;
    block_.add_shapes();  // without dimensions
    block_.add_shapes()->add_dims(3);
    v1::Shape* matrix = block_.add_shapes();
    matrix->add_dims(2);
    matrix->add_dims(16);
    block_.add_shapes()->add_dims(0);
    block_.add_parents("Module.model.Model.forward.0");
  }

  void AddRecord(bool debug) {
    constexpr v1::RecordKind kKinds[] = {v1::RECORD_API, v1::RECORD_API, v1::RECORD_MODULE, v1::RECORD_PARAMETERS_GRAD};
    const v1::RecordKind kind = debug ? v1::RECORD_DEBUG : kKinds[Pick(4)];
    const std::string name = kind == v1::RECORD_API ? "Functional.f" : kind == v1::RECORD_DEBUG ? "x" : "Module.m.M";
    const uint32_t count = number_++;
    if (kind == v1::RECORD_DEBUG) {
      Fragment(name, kind, count, v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT, {"debug"});
    } else if (kind == v1::RECORD_PARAMETERS_GRAD) {
      Fragment(name, kind, count, v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT, {"weight"});
      Fragment(name, kind, count, v1::FRAGMENT_UPDATE, {"weight", "bias"});
    } else {
      // The output is given before what was put in: rows stand in another order than fields.
      const bool swapped = Chance(20);
      Fragment(name, kind, count, v1::FRAGMENT_ENTER,
               swapped ? std::vector<std::string>{"output", "input_kwargs", "input_args", "unknown"}
                       : std::vector<std::string>{"input_args", "input_kwargs", "parameters"});
      Fragment(name, kind, count, v1::FRAGMENT_EXIT, {"output"});
    }
  }

  void Fragment(const std::string& name, v1::RecordKind kind, uint32_t count, uint32_t flags,
                const std::vector<std::string>& fields) {
    v1::Structure structure;
    structure.set_name(name);
    structure.set_kind(kind);
    structure.mutable_fields()->mutable_dict();
    for (const std::string& field : fields) {
      v1::Node::Entry& entry = *structure.mutable_fields()->mutable_dict()->add_entries();
      entry.set_key(field);
      AddNode(*entry.mutable_value(), 0);
    }
    const uint64_t id = IdOf(structure);
    structures_[id] = structure;
    block_.add_structures(id);
    block_.add_structure(static_cast<uint32_t>(block_.structures_size() - 1));
    block_.add_count(count);
    block_.add_ordinal_delta(static_cast<int64_t>(++ordinal_ - last_ordinal_));
    last_ordinal_ = ordinal_;
    block_.add_fragment_flags(flags);
    block_.add_stack(0);
    block_.add_parent(Pick(2));
  }

  void AddNode(v1::Node& node, int depth) {
    const uint32_t kind = Pick(depth < 3 ? 12 : 8);
    if (kind < 4) return AddTensor(*node.mutable_tensor());
    if (kind == 4) return AddSlot(node, v1::Node::INTEGER);
    if (kind == 5) return AddSlot(node, v1::Node::FLOAT);
    if (kind == 6) return AddSlot(node, static_cast<v1::Node::Slot>(1 + Pick(6)));
    if (kind == 7) return AddSlot(node, v1::Node::JSON);
    if (kind < 10) {
      node.mutable_list();
      for (uint32_t i = Pick(4); i > 0; --i) AddNode(*node.mutable_list()->add_items(), depth + 1);
      return;
    }
    if (kind == 10) {
      AddPointToPoint(node);
      return;
    }
    constexpr const char* kKeys[] = {"src", "group_dst", "alpha", "a.b", "type"};
    node.mutable_dict();
    for (uint32_t i = Pick(3); i > 0; --i) {
      v1::Node::Entry& entry = *node.mutable_dict()->add_entries();
      entry.set_key(kKeys[Pick(5)]);
      // A text beside "type" would make the dict a leaf of dump.json: no agent and no import gives one.
      if (entry.key() == "type") {
        AddSlot(*entry.mutable_value(), v1::Node::INTEGER);
      } else {
        AddNode(*entry.mutable_value(), depth + 1);
      }
    }
  }

  void AddSlot(v1::Node& node, v1::Node::Slot slot) {
    constexpr int64_t kIntegers[] = {0, -7, 31, int64_t{0x6d737072} << 32, std::numeric_limits<int64_t>::min()};
    const double floats[] = {0.1, -0.0, 1e22, 3, std::ldexp(1.0, 900), kInfinity, -kInfinity, kNan};
    constexpr const char* kTexts[] = {"", "mean", "it's", "a\nb"};
    constexpr const char* kJson[] = {R"({"type": "torch.Size", "value": [2, 3]})",
                                     R"({"type": "slice", "value": [null, 3, null]})",
                                     R"({"type": "ellipsis", "value": "..."})",
                                     R"({"type": "torch.memory_format", "format": "torch.channels_last"})",
                                     R"({"type": "torch.ProcessGroup", "group_ranks": [0, 1]})",
                                     R"({"type": "numpy.float32", "value": 0.25})",
                                     R"([1, {"type": "int", "value": 2}])",
                                     R"({"broken": )",
                                     "3"};
    node.set_slot(slot);
    if (slot == v1::Node::BOOLEAN) block_.add_booleans(Chance(50));
    if (slot == v1::Node::INTEGER) block_.add_integers(kIntegers[Pick(5)]);
    if (slot == v1::Node::FLOAT) block_.add_floats(floats[Pick(8)]);
    if (slot == v1::Node::STRING) block_.add_strings(kTexts[Pick(4)]);
    if (slot == v1::Node::JSON) block_.add_strings(kJson[Pick(9)]);
  }

  void AddPointToPoint(v1::Node& node) {
    const auto add = [&](const char* key) -> v1::Node& {
      v1::Node::Entry& entry = *node.mutable_dict()->add_entries();
      entry.set_key(key);
      return *entry.mutable_value();
    };
    const auto json = [&](const char* key, const char* text) {
      add(key).set_slot(v1::Node::JSON);
      block_.add_strings(text);
    };
    json("class_type", R"("torch.distributed.P2POp")");
    AddTensor(*add("tensor").mutable_tensor());
    json("op", Chance(50) ? R"("isend")" : R"("irecv")");
    json("peer", Chance(80) ? "1" : "null");
  }

  double Number() {
    const double numbers[] = {0, -0.0, 0.5, -3, 1e30, kNan, kInfinity, -kInfinity};
    return numbers[Pick(8)];
  }

  void AddTensor(v1::Node::TensorSlot& slot) {
    constexpr const char* kTypes[] = {"torch.Tensor", "torch.Tensor", "torch.nn.Parameter", "numpy.ndarray",
                                      "mindspore.Tensor"};
    slot.set_type(kTypes[Pick(5)]);
    slot.set_dtype(static_cast<v1::DType>(1 + Pick(25)));
    if (Chance(5)) {
      slot.set_dtype(v1::DTYPE_OTHER);
      slot.set_dtype_name("Float32");
    }
    slot.set_requires_grad(Chance(50));
    slot.set_device("cpu");
    if (Chance(10)) slot.set_attributes_json(R"({"q_scale": 0.5, "placements": [{"Shard": {"dim": 0}}]})");
    const auto leaf = static_cast<uint32_t>(block_.leaf_flags_size());
    block_.add_shape(Pick(4));
    uint32_t flags = 0;
    if (Chance(85)) {
      flags |= v1::LEAF_STATISTICS;
      const bool imported = Chance(15);
      if (imported) flags |= v1::LEAF_IMPORTED;
      if (IsInteger(slot.dtype())) {
        flags |= v1::LEAF_INTEGER;
        for (int i = 0; i < 2; ++i)
          block_.add_integer_extremes(slot.dtype() == v1::DTYPE_BOOL ? Pick(2) : int64_t{Pick(9)} - 4);
        for (int i = 0; i < 3; ++i) block_.add_integer_moments(Number());
      } else if (Chance(30)) {
        flags |= v1::LEAF_WIDE;
        for (int i = 0; i < 5; ++i) block_.add_wide(Number());
      } else {
        for (int i = 0; i < 5; ++i) block_.add_narrow(static_cast<float>(Number()));
      }
      block_.add_zero_count(Pick(5));
      if (!imported && Chance(20)) {
        v1::NonFinite& counts = *block_.add_non_finite();
        counts.set_leaf(leaf);
        counts.set_nan_count(Pick(3));
        counts.set_positive_inf_count(Pick(3));
        counts.set_negative_inf_count(1);
      }
    }
    if (Chance(60)) {
      flags |= v1::LEAF_CRC32;
      block_.add_crc32(Pick(1 << 30));
    }
    if (Chance(60)) {
      flags |= v1::LEAF_XOR;
      // Of an element without dimensions: as wide as it is.
      block_.add_xor64(DTypeSize(slot.dtype()) == 1 ? Pick(256) : Pick(65536));
    }
    if (Chance(40)) {
      flags |= v1::LEAF_PAYLOAD;
      v1::PayloadRef& payload = *block_.add_payload();
      payload.set_hash(std::string(16, static_cast<char>(leaf)));
      payload.set_size(12);
    }
    block_.add_leaf_flags(flags);
  }

  std::mt19937 random_;
  std::map<uint64_t, v1::Structure> structures_;
  v1::Block block_;
  StepBlocks blocks_;
  uint64_t ordinal_ = 0;
  uint64_t last_ordinal_ = 0;
  uint32_t number_ = 0;
};

// The table that is read from the entries of an export.
void ReadFromExport(const RandomStep& step, const StepBlocks& blocks, const v1::CaptureSettings& settings,
                    StepTable& table) {
  RecordAssembler assembler(0, {}, [&](uint64_t id) { return step.Find(id); });
  for (const auto& block : blocks) ASSERT_TRUE(assembler.Add(block).ok());
  std::string full_name;
  RecordJsonOptions options;
  options.xor_checksum = settings.summary_mode() == "xor";
  options.crc32 = settings.summary_mode() == "md5";
  options.extended = true;
  options.high_precision = settings.high_precision();
  options.data_name = [&](std::span<const std::string> path, const v1::TensorLeaf& leaf) {
    return leaf.has_payload() ? Cat(TensorFileName(full_name, path), ".pt") : std::string();
  };
  table.mode = settings.summary_mode() == "statistics" ? StepTable::Mode::kStatistics : StepTable::Mode::kChecksum;
  DumpReader reader(&table);
  JsonWriter writer(false);
  ASSERT_TRUE(assembler
                  .ForEach([&](const v1::Record& record, uint64_t) {
                    full_name = record.full_name();
                    WriteRecord(record, options, writer);
                    absl::Status status = reader.AddEntry(full_name, writer.Take(), record.token());
                    table.entries.back().parent = table.arena.Add(record.parent());
                    return status;
                  })
                  .ok());
}

TEST(TableLayoutTest, AStoredStepSaysWhatItsExportSays) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    for (const char* summary_mode : {"statistics", "md5", "xor"}) {
      SCOPED_TRACE(Cat("seed ", seed, ", summary_mode ", summary_mode));
      const bool debug = seed % 5 == 4;
      RandomStep step(seed, debug);
      v1::CaptureSettings settings;
      settings.set_task("statistics");
      settings.set_level(debug ? "debug" : "mix");
      settings.set_summary_mode(summary_mode);
      settings.set_high_precision(seed % 3 == 0);
      const auto find = [&](uint64_t id) { return step.Find(id); };
      auto layout = MakeTableLayout(settings, step.blocks(), find);
      ASSERT_TRUE(layout.ok()) << layout.status();
      const StepBlocks others = step.WithOtherNumbers();
      EXPECT_EQ(LayoutKey(settings, step.blocks()), LayoutKey(settings, others));
      for (const StepBlocks& blocks : {step.blocks(), others}) {
        StepTable stored;
        StoredContents contents;
        ASSERT_TRUE(FillTable(*layout, blocks, stored, contents, nullptr).ok());
        StepTable read;
        ReadFromExport(step, blocks, settings, read);
        ASSERT_THAT(TableText(stored), testing::ElementsAreArray(TableText(read)));
        for (const Row& row : stored.rows) EXPECT_EQ(contents.contains(row.data_name), !row.data_name.empty());
      }
    }
  }
}

// A call in a module, and one behind it; in the next step the module's is behind the first.
TEST(TableLayoutTest, RowsNameTheRowsThatMadeThem) {
  std::map<uint64_t, v1::Structure> structures;
  const auto define = [&](const std::string& name, v1::RecordKind kind, const std::vector<std::string>& fields) {
    v1::Structure structure = TensorStructure(name, kind, fields);
    structures[IdOf(structure)] = structure;
    return structure;
  };
  const v1::Structure module_in = define("Module.m.M", v1::RECORD_MODULE, {"input_args"});
  const v1::Structure module_out = define("Module.m.M", v1::RECORD_MODULE, {"output", "parameters"});
  const v1::Structure relu = define("Torch.relu", v1::RECORD_API, {"output"});
  const v1::Structure add = define("Torch.add", v1::RECORD_API, {"input_args", "input_kwargs"});
  TableLayouts layouts;
  const auto table_of = [&](int64_t distance, bool edges, StepTable& table) {
    BlockScript script(3, 0);
    script.Fragment(module_in, 0, 1, v1::FRAGMENT_ENTER, {1})
        .Fragment(relu, 0, 2, v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT, {2})
        .Fragment(module_out, 0, 3, v1::FRAGMENT_EXIT, {2, 9})
        .Fragment(add, 0, 4, v1::FRAGMENT_ENTER, {2, 2});
    if (edges) script.Edge(0, v1::EDGE_OUTSIDE).Edge(4, v1::EDGE_VIEW, distance).Edge(5, v1::EDGE_SAME, 99);
    const StepBlocks blocks = {std::make_shared<v1::Block>(script.block())};
    auto layout = layouts.Get(LayoutKey({}, blocks), [&] {
      return MakeTableLayout({}, blocks,
                             [&](uint64_t id) { return DecodeStructure(structures[id].SerializeAsString()); });
    });
    ASSERT_TRUE(layout.ok()) << layout.status();
    StoredContents contents;
    ASSERT_TRUE(FillTable(*layout, blocks, table, contents, nullptr).ok());
  };
  const auto told = [](const StepTable& table) {
    std::vector<std::string> rows;
    for (const Row& row : table.rows) {
      if (row.edge == EdgeKind::kUnknown) continue;
      const bool made = row.producer >= 0;
      rows.push_back(Cat(row.name, " ", static_cast<int>(row.edge), " ",
                         made ? table.rows[static_cast<size_t>(row.producer)].name : "", " ",
                         made ? table.entries[table.EntryOf(static_cast<uint32_t>(row.producer))].name : ""));
    }
    return rows;
  };
  StepTable inside, around, without;
  table_of(2, true, inside);
  EXPECT_THAT(told(inside),
              testing::ElementsAre("Module.m.M.forward.0.input.0 1  ",
                                   "Torch.add.0.forward.input.0 3 Torch.relu.0.forward.output.0 Torch.relu.0.forward"));
  table_of(1, true, around);
  EXPECT_EQ(around.layout, inside.layout) << "edges are no part of the layout";
  EXPECT_THAT(told(around), testing::Contains("Torch.add.0.forward.input.0 3 Module.m.M.forward.0.output.0 "
                                              "Module.m.M.forward.0"));
  table_of(0, false, without);
  EXPECT_THAT(told(without), testing::IsEmpty());
}

TEST(TableLayoutTest, AShortColumnIsDataLoss) {
  RandomStep step(1, false);
  const auto find = [&](uint64_t id) { return step.Find(id); };
  auto layout = MakeTableLayout(v1::CaptureSettings(), step.blocks(), find);
  ASSERT_TRUE(layout.ok()) << layout.status();
  StepBlocks blocks = step.blocks();
  auto cut = std::make_shared<v1::Block>(*blocks[0]);
  cut->mutable_narrow()->RemoveLast();
  blocks[0] = cut;
  StepTable table;
  StoredContents contents;
  const absl::Status status = FillTable(*layout, blocks, table, contents, nullptr);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("column narrow"));
}

}  // namespace
}  // namespace msprobe::server
