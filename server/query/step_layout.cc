#include "server/query/step_layout.h"

#include <xxhash.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "server/analysis/table/dump_table.h"
#include "server/exporter/record_json.h"
#include "server/exporter/tensor_file_name.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/storage/block_columns.h"
#include "server/format/storage/fragment_decoder.h"
#include "server/format/storage/record_assembler.h"
#include "server/format/storage/structure_summary.h"

namespace msprobe::server {
namespace {

// Numbers that stand for places in columns while a layout is made: no dump has them.
constexpr int64_t kIntegerTag = int64_t{0x6d73'7072} << 32;
const double kFloatTag = std::ldexp(1.0, 900);
constexpr double kFloatTags = 1 << 30;

constexpr uint32_t kLayoutFlags = v1::LEAF_PAYLOAD;

std::optional<uint64_t> TaggedInteger(int64_t value) {
  if ((value >> 32) != (kIntegerTag >> 32)) return std::nullopt;
  return static_cast<uint64_t>(value - kIntegerTag);
}

std::optional<uint64_t> TaggedFloat(double value) {
  if (!(value >= kFloatTag && value < 2 * kFloatTag)) return std::nullopt;
  return static_cast<uint64_t>((value / kFloatTag - 1) * kFloatTags);
}

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

StepLayout::Leaf LeafOf(const v1::Node::TensorSlot& slot, bool high_precision) {
  StepLayout::Leaf leaf;
  leaf.slot = &slot;
  leaf.dtype = DTypeOfName(DTypeName(slot));
  leaf.torch = slot.type().starts_with("torch.");
  leaf.numpy = slot.type() == "numpy.ndarray";
  const bool small = leaf.torch && (IsFloat8(leaf.dtype) || leaf.dtype == v1::DTYPE_FLOAT4_E2M1FN_X2);
  leaf.no_statistics = small && !high_precision;
  leaf.no_moments = leaf.torch && !high_precision &&
                    (leaf.dtype == v1::DTYPE_FLOAT64 || IsInteger(leaf.dtype) || IsQuantized(leaf.dtype));
  leaf.no_norm = leaf.no_moments || (leaf.torch && !high_precision && IsComplex(leaf.dtype));
  leaf.own_value = leaf.torch && leaf.dtype != v1::DTYPE_BOOL && !IsComplex(leaf.dtype);
  return leaf;
}

// Makes a layout from blocks whose numbers are replaced by where they stand.
class Maker {
 public:
  Maker(const v1::CaptureSettings& settings, const StepBlocks& blocks, StructureLookup structure)
      : settings_(settings), blocks_(blocks), lookup_(structure), layout_(std::make_shared<StepLayout>()) {}

  absl::StatusOr<std::shared_ptr<const StepLayout>> Make() {
    Describe();
    RecordAssembler assembler(0, {}, [this](uint64_t id) -> absl::StatusOr<SharedStructure> {
      auto known = Known(id);
      if (!known.ok()) return known.status();
      return (*known)->decoded;
    });
    for (const auto& block : blocks_) {
      absl::StatusOr<v1::Block> tagged = Tagged(*block);
      if (!tagged.ok()) return tagged.status();
      if (absl::Status status = assembler.Add(std::make_shared<v1::Block>(*std::move(tagged))); !status.ok())
        return status;
    }
    if (absl::Status status = AddRows(assembler); !status.ok()) return status;
    PlaceRows();
    return layout_;
  }

 private:
  struct KnownStructure {
    SharedStructure decoded;
    std::vector<StepLayout::Leaf> leaves;
  };

  void Describe() {
    StepTable& table = layout_->table;
    table.framework = settings_.framework().empty() ? "pytorch" : settings_.framework();
    table.task = settings_.task();
    table.level = settings_.level();
    table.debug = settings_.level() == "debug";
    layout_->crc32 = settings_.summary_mode() == "md5";
    layout_->xor_checksum = settings_.summary_mode() == "xor";
    table.mode = settings_.task() == "tensor"              ? StepTable::Mode::kTensor
                 : layout_->crc32 || layout_->xor_checksum ? StepTable::Mode::kChecksum
                                                           : StepTable::Mode::kStatistics;
  }

  absl::StatusOr<const KnownStructure*> Known(uint64_t id) {
    if (const auto found = known_.find(id); found != known_.end()) return found->second.get();
    auto decoded = lookup_(id);
    if (!decoded.ok()) return decoded.status();
    layout_->structures.push_back(*decoded);
    auto known = std::make_unique<KnownStructure>();
    known->decoded = *std::move(decoded);
    for (const v1::Node::TensorSlot* slot : TensorSlots(known->decoded->structure))
      known->leaves.push_back(LeafOf(*slot, settings_.high_precision()));
    return known_.emplace(id, std::move(known)).first->second.get();
  }

  absl::StatusOr<v1::Block> Tagged(const v1::Block& block) {
    for (uint64_t id : block.structures()) {
      if (auto known = Known(id); !known.ok()) return known.status();
    }
    auto checked = CheckBlock(
        block, [&](uint64_t id) { return &known_.at(id)->decoded->summary; }, [](uint64_t) { return true; });
    if (!checked.ok()) return absl::DataLossError(Cat("a stored block: ", StdView(checked.status().message())));
    v1::Block tagged = block;
    tagged.clear_digest();
    tagged.clear_stacks();
    for (int i = 0; i < block.structure_size(); ++i) {
      const KnownStructure& known = *known_.at(block.structures(static_cast<int>(block.structure(i))));
      layout_->leaves.insert(layout_->leaves.end(), known.leaves.begin(), known.leaves.end());
      ++fragments_;
      if (block.stack(i) == 0) continue;
      tagged.add_stacks(fragments_);
      tagged.set_stack(i, static_cast<uint32_t>(tagged.stacks_size()));
    }
    TagLeaves(block, tagged);
    for (int64_t& value : *tagged.mutable_integers()) value = kIntegerTag + static_cast<int64_t>(integers_++);
    for (double& value : *tagged.mutable_floats()) {
      value = kFloatTag * (1 + static_cast<double>(floats_++) / kFloatTags);
    }
    return tagged;
  }

  // Statistics of nothing, and the number of the leaf as its count of NaN.
  void TagLeaves(const v1::Block& block, v1::Block& tagged) {
    tagged.clear_shapes();
    tagged.add_shapes()->add_dims(1);
    tagged.clear_narrow();
    tagged.clear_wide();
    tagged.clear_integer_extremes();
    tagged.clear_integer_moments();
    tagged.clear_non_finite();
    tagged.clear_crc32();
    tagged.clear_xor64();
    const int leaves = block.leaf_flags_size();
    tagged.mutable_narrow()->Resize(5 * leaves, 0.0F);
    tagged.mutable_zero_count()->Clear();
    tagged.mutable_zero_count()->Resize(leaves, 0);
    for (int i = 0; i < leaves; ++i) {
      tagged.set_shape(i, 0);
      tagged.set_leaf_flags(i, v1::LEAF_STATISTICS | (block.leaf_flags(i) & v1::LEAF_PAYLOAD));
      v1::NonFinite& tag = *tagged.add_non_finite();
      tag.set_leaf(static_cast<uint32_t>(i));
      tag.set_nan_count(++leaves_);
    }
  }

  absl::Status AddRows(RecordAssembler& assembler) {
    StepTable& table = layout_->table;
    const std::string_view suffix = table.framework == "mindspore" ? ".npy" : ".pt";
    std::string full_name;
    RecordJsonOptions options;
    options.extended = true;
    options.high_precision = true;
    options.data_name = [&](std::span<const std::string> path, const v1::TensorLeaf& leaf) -> std::string {
      return leaf.has_payload() ? Cat(TensorFileName(full_name, path), suffix) : std::string();
    };
    DumpTableBuilder builder(&table);
    JsonWriter writer(false);
    return assembler.ForEach([&](const v1::Record& record, uint64_t fragment) -> absl::Status {
      if ((record.flags() & v1::FRAGMENT_CONSTRUCT_ONLY) != 0 || (record.kind() == v1::RECORD_DEBUG) != table.debug) {
        return absl::OkStatus();
      }
      full_name = record.full_name();
      WriteRecord(record, options, writer);
      if (absl::Status status = builder.AddEntry(full_name, writer.Take(), record.token()); !status.ok()) return status;
      table.entries.back().parent = table.arena.Add(record.parent());
      layout_->stack_of.push_back(fragment);
      return absl::OkStatus();
    });
  }

  // Reads the tags.
  void PlaceRows() {
    StepTable& table = layout_->table;
    layout_->integers.resize(integers_);
    layout_->floats.resize(floats_);
    absl::flat_hash_set<std::string_view> names;
    names.reserve(table.rows.size());
    layout_->unique = true;
    for (size_t i = 0; i < table.rows.size(); ++i) {
      Row& row = table.rows[i];
      const auto at = static_cast<int32_t>(i);
      layout_->unique = names.insert(row.name).second && layout_->unique;
      if (row.extended >= 0) {
        const uint64_t leaf = table.extended[static_cast<size_t>(row.extended)].nan_count;
        if (leaf >= 1 && leaf <= layout_->leaves.size()) layout_->leaves[leaf - 1].row = at;
        row.statistics = {};
        continue;
      }
      const Cell& cell = row.statistics[0];
      std::optional<uint64_t> integer;
      std::optional<uint64_t> real;
      if (cell.kind == Cell::Kind::kInteger) integer = TaggedInteger(cell.integer);
      if (cell.kind == Cell::Kind::kReal) real = TaggedFloat(cell.real);
      if (cell.kind == Cell::Kind::kText) {
        int64_t value = 0;
        double floating = 0;
        const char* const end = cell.text + cell.text_size;
        if (std::from_chars(cell.text, end, value).ptr == end) {
          integer = TaggedInteger(value);
        } else if (std::from_chars(cell.text, end, floating).ptr == end) {
          real = TaggedFloat(floating);
        }
      }
      const bool text = cell.kind == Cell::Kind::kText;
      if (integer && *integer < integers_) layout_->integers[*integer] = {at, text};
      if (real && *real < floats_) layout_->floats[*real] = {at, text};
    }
    for (ExtendedStatistics& extended : table.extended) extended = {};
  }

  const v1::CaptureSettings& settings_;
  const StepBlocks& blocks_;
  StructureLookup lookup_;
  const std::shared_ptr<StepLayout> layout_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<KnownStructure>> known_;
  uint64_t fragments_ = 0;
  uint64_t leaves_ = 0;
  uint64_t integers_ = 0;
  uint64_t floats_ = 0;
};

}  // namespace

StepLayout::Key LayoutKey(const v1::CaptureSettings& settings, const StepBlocks& blocks) {
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

absl::StatusOr<std::shared_ptr<const StepLayout>> MakeStepLayout(const v1::CaptureSettings& settings,
                                                                 const StepBlocks& blocks, StructureLookup structure) {
  return Maker(settings, blocks, structure).Make();
}

}  // namespace msprobe::server
