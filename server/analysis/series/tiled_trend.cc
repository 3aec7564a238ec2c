#include "server/analysis/series/tiled_trend.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/table/statistic.h"
#include "server/format/cat.h"
#include "server/format/storage/structure_summary.h"
#include "server/format/tiles/tile_reader.h"

namespace msprobe::server {

absl::StatusOr<std::unique_ptr<TiledTrend>> TiledTrend::Make(const TileSource& tiles,
                                                             const std::vector<TileSource::Step>& steps,
                                                             const std::string& name_glob) {
  std::unique_ptr<TiledTrend> trend(new TiledTrend(tiles, name_glob));
  trend->taken_.resize(steps.size());
  std::map<TileSource::Session, std::vector<size_t>> sessions;
  for (size_t i = 0; i < steps.size(); ++i) sessions[steps[i].session()].push_back(i);
  for (const auto& [session, of] : sessions) {
    if (absl::Status status = trend->AddSession(steps, of); !status.ok()) return status;
  }
  return trend;
}

absl::Status TiledTrend::AddSession(const std::vector<TileSource::Step>& steps, const std::vector<size_t>& of) {
  const TileSource::Session session = steps[of[0]].session();
  absl::flat_hash_map<uint32_t, size_t> wanted;
  wanted.reserve(of.size());
  for (size_t index : of) wanted.emplace(steps[index].key.step, index);
  return tiles_.ForEachSet(session, [&](uint32_t set, storage::TileSetRow row) {
    return AddSet(steps, session, wanted, set, std::make_shared<const storage::TileSetRow>(std::move(row)));
  });
}

absl::Status TiledTrend::AddSet(const std::vector<TileSource::Step>& steps, const TileSource::Session& session,
                                const absl::flat_hash_map<uint32_t, size_t>& wanted, uint32_t set,
                                const std::shared_ptr<const storage::TileSetRow>& row) {
  std::map<uint64_t, Part> parts;
  for (int i = 0; i < row->passes_size(); ++i) {
    const storage::TileSetRow::Pass& pass = row->passes(i);
    const auto step = wanted.find(pass.step());
    if (pass.forgotten() || step == wanted.end()) continue;
    if (static_cast<uint32_t>(pass.blocks_size()) != steps[step->second].blocks) continue;
    parts[pass.layout()].passes.push_back({static_cast<uint32_t>(i), pass.token(), step->second});
  }
  for (auto& [layout, part] : parts) {
    const std::tuple key(session.rank, session.epoch, layout);
    if (!choices_.contains(key)) {
      auto chosen = Choose(steps[part.passes[0].step].key);
      if (!chosen.ok()) return chosen.status();
      choices_[key] = *std::move(chosen);
    }
    for (const Pass& pass : part.passes) taken_[pass.step] = true;
    part.session = session;
    part.set = set;
    part.row = row;
    const Choices& choices = choices_[key];
    for (const std::unique_ptr<Choice>& choice : choices) {
      part.choice = choice.get();
      part.last = choice == choices.back();
      parts_.push_back(part);
    }
  }
  return absl::OkStatus();
}

// Chooses rows of a layout by name, then finds where their values lie in the fragments of its passes.
class TiledTrend::Chooser {
 public:
  explicit Chooser(std::shared_ptr<const TableLayout> layout)
      : layout_(std::move(layout)), chosen_(layout_->table.rows.size(), -1) {}

  void ChooseRows(const std::string& name_glob) {
    const StepTable& table = layout_->table;
    size_t place = 0;
    for (const Entry& entry : table.entries) {
      for (size_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
        const Row& row = table.rows[i];
        if (!HasStatistics(row) || fnmatch(name_glob.c_str(), std::string(row.name).c_str(), 0) != 0) continue;
        Choices& choices = row.is_tensor ? tensors_ : numbers_;
        if (choices.empty() || choices.back()->rows.size() == kMaxTensors) {
          choices.push_back(std::make_unique<Choice>());
          choices.back()->layout = layout_;
        }
        Choice& choice = *choices.back();
        chosen_[i] = static_cast<int32_t>((choices.size() - 1) * kMaxTensors + choice.rows.size());
        choice.rows.push_back(i);
        choice.places.push_back(place++);
        choice.entries.push_back(&entry);
      }
    }
  }

  // Fragments come in order of arrival. False: the layout has no such columns.
  bool AddFragment(const StructureSummary& summary) {
    at_.leaves = summary.leaves;
    at_.integers = summary.integers;
    at_.reals = summary.floats;
    if (at_.leaf + at_.leaves > layout_->leaves.size() || at_.integer + at_.integers > layout_->integers.size() ||
        at_.real + at_.reals > layout_->floats.size()) {
      return false;
    }
    for (uint32_t i = 0; i < at_.leaves; ++i) AddLeaf(i);
    for (size_t i = 0; i < at_.integers; ++i) AddWhole(layout_->integers[at_.integer + i]);
    for (size_t i = 0; i < at_.reals; ++i) AddWhole(layout_->floats[at_.real + i]);
    at_.leaf += at_.leaves;
    at_.integer += at_.integers;
    at_.real += at_.reals;
    ++at_.fragment;
    return true;
  }

  bool at_end() const { return at_.leaf == layout_->leaves.size(); }

  // Tensors, then numbers.
  Choices Take() {
    for (auto& choice : numbers_) tensors_.push_back(std::move(choice));
    return std::move(tensors_);
  }

 private:
  void AddLeaf(uint32_t leaf) {
    const int32_t row = layout_->leaves[at_.leaf + leaf].row;
    if (row < 0 || chosen_[static_cast<size_t>(row)] < 0) return;
    const auto number = static_cast<size_t>(chosen_[static_cast<size_t>(row)]);
    Choice& choice = *tensors_[number / kMaxTensors];
    choice.leaves.push_back({at_.fragment, leaf, static_cast<int32_t>(number % kMaxTensors)});
    choice.layout_leaves.push_back(at_.leaf + leaf);
  }

  void AddWhole(const TableLayout::Scalar& scalar) {
    if (scalar.row < 0 || chosen_[static_cast<size_t>(scalar.row)] < 0) return;
    Choice& choice = *numbers_[static_cast<size_t>(chosen_[static_cast<size_t>(scalar.row)]) / kMaxTensors];
    if (choice.fragments.empty() || choice.fragments.back().fragment != at_.fragment) choice.fragments.push_back(at_);
  }

  const std::shared_ptr<const TableLayout> layout_;
  std::vector<int32_t> chosen_;  // by row of the layout: its number among tensors, or among numbers; -1: not chosen
  Choices tensors_, numbers_;
  WholeFragment at_;  // the fragment that comes next
};

absl::StatusOr<TiledTrend::Choices> TiledTrend::Choose(const StepKey& step) const {
  auto settings = tiles_.SettingsOf({step.run, step.rank, step.epoch});
  if (!settings.ok()) return settings.status();
  auto blocks = tiles_.Blocks(step);
  if (!blocks.ok()) return blocks.status();
  const auto structure = [&](uint64_t id) { return tiles_.Structure(step.run, id); };
  auto layout = tiles_.layouts().Get(LayoutKey(*settings, *blocks),
                                     [&] { return MakeTableLayout(*settings, *blocks, structure); });
  if (!layout.ok()) return layout.status();
  Chooser chooser(*layout);
  chooser.ChooseRows(name_glob_);
  absl::flat_hash_map<uint64_t, SharedStructure> structures;
  for (const auto& block : *blocks) {
    for (uint32_t index : block->structure()) {
      const uint64_t id = block->structures(static_cast<int>(index));
      auto known = structures.find(id);
      if (known == structures.end()) {
        auto read = structure(id);
        if (!read.ok()) return read.status();
        known = structures.emplace(id, *std::move(read)).first;
      }
      if (!chooser.AddFragment(known->second->summary)) {
        return absl::DataLossError(Cat(step.ToString(), " has other columns than its layout"));
      }
    }
  }
  if (!chooser.at_end()) return absl::DataLossError(Cat(step.ToString(), " has other leaves than its layout"));
  return chooser.Take();
}

std::shared_ptr<const TableLayout> TiledTrend::Repeated(Choice& choice, size_t passes) {
  absl::MutexLock lock(&choice.mu);
  std::shared_ptr<const TableLayout>& known = choice.repeated[passes];
  if (known != nullptr) return known;
  const TableLayout& from = *choice.layout;
  auto layout = std::make_shared<TableLayout>();
  StepTable& table = layout->table;
  table.texts = from.table.texts;
  table.interned = from.table.interned;
  table.framework = from.table.framework;
  table.task = from.table.task;
  table.level = from.table.level;
  table.mode = from.table.mode;
  table.debug = from.table.debug;
  table.borrowed = choice.layout;
  layout->crc32 = from.crc32;
  layout->xor_checksum = from.xor_checksum;
  for (size_t pass = 0; pass < passes; ++pass) {
    const auto first = static_cast<int32_t>(table.rows.size());
    for (size_t row : choice.rows) {
      table.rows.push_back(from.table.rows[row]);
      if (table.rows.back().extended < 0) continue;
      table.rows.back().extended = static_cast<int32_t>(table.extended.size());
      table.extended.emplace_back();
    }
    for (size_t i = 0; i < choice.leaves.size(); ++i) {
      layout->leaves.push_back(from.leaves[choice.layout_leaves[i]]);
      layout->leaves.back().row = first + choice.leaves[i].row;
    }
    const auto repeated = [&](TableLayout::Scalar scalar) {
      const auto row =
          std::lower_bound(choice.rows.begin(), choice.rows.end(), scalar.row,
                           [](size_t each, int32_t wanted) { return static_cast<int32_t>(each) < wanted; });
      const bool wanted = row != choice.rows.end() && static_cast<int32_t>(*row) == scalar.row;
      scalar.row = wanted ? first + static_cast<int32_t>(row - choice.rows.begin()) : -1;
      return scalar;
    };
    for (const WholeFragment& whole : choice.fragments) {
      for (size_t i = 0; i < whole.leaves; ++i) {
        layout->leaves.push_back(from.leaves[whole.leaf + i]);
        layout->leaves.back().row = -1;
      }
      for (size_t i = 0; i < whole.integers; ++i)
        layout->integers.push_back(repeated(from.integers[whole.integer + i]));
      for (size_t i = 0; i < whole.reals; ++i) layout->floats.push_back(repeated(from.floats[whole.real + i]));
    }
  }
  return known = std::move(layout);
}

// Copies what a choice needs from the tiles of one set into a block, pass by pass.
class TiledTrend::PassReader {
 public:
  PassReader(const TileSource& tiles, const Part& part) : tiles_(tiles), part_(part) {}

  // Opens the tiles of the part's leaves or whole fragments: a choice has one kind of these.
  absl::Status Open() {
    for (const LeafPlace& leaf : part_.choice->leaves) {
      if (absl::Status status = Open(leaf.fragment); !status.ok()) return status;
    }
    for (const WholeFragment& whole : part_.choice->fragments) {
      if (absl::Status status = Open(whole.fragment); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Append(uint32_t pass, BlockBuilder& builder) const {
    const std::vector<LeafPlace>& leaves = part_.choice->leaves;
    for (size_t i = 0; i < leaves.size(); ++i) {
      TileAt& tile = *tile_of_[i];
      absl::Status status = tile.reader->AppendLeaf(leaves[i].fragment - tile.first, leaves[i].leaf, pass, builder);
      if (!status.ok()) return status;
    }
    const std::vector<WholeFragment>& fragments = part_.choice->fragments;
    for (size_t i = 0; i < fragments.size(); ++i) {
      TileAt& tile = *tile_of_[i];
      absl::Status status = tile.reader->AppendFragments(fragments[i].fragment - tile.first, 1, pass, builder);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  struct TileAt {
    std::string bytes;
    std::optional<TileReader> reader;
    uint32_t first = 0;  // its first fragment
  };

  // Fragments come in order.
  absl::Status Open(uint32_t fragment) {
    while (number_ < static_cast<uint32_t>(part_.row->tile_fragments_size()) &&
           fragment >= first_ + part_.row->tile_fragments(static_cast<int>(number_))) {
      first_ += part_.row->tile_fragments(static_cast<int>(number_++));
    }
    TileAt& tile = opened_[number_];
    if (!tile.reader.has_value()) {
      const auto& [run, rank, epoch] = part_.session;
      auto bytes = tiles_.Tile({run, rank, epoch, part_.set, number_});
      if (!bytes.ok()) return bytes.status();
      tile.bytes = *std::move(bytes);
      auto reader = TileReader::Open(tile.bytes);
      if (!reader.ok()) return reader.status();
      tile.reader = *std::move(reader);
      tile.first = first_;
    }
    tile_of_.push_back(&tile);
    return absl::OkStatus();
  }

  const TileSource& tiles_;
  const Part& part_;
  uint32_t number_ = 0;                // of the tile that the last fragment lies in
  uint32_t first_ = 0;                 // that tile's first fragment
  std::map<uint32_t, TileAt> opened_;  // by number
  std::vector<TileAt*> tile_of_;       // by leaf or whole fragment of the choice
};

absl::StatusOr<StepTable> TiledTrend::Read(size_t index) const {
  const Part& part = parts_[index];
  PassReader reader(tiles_, part);
  if (absl::Status status = reader.Open(); !status.ok()) return status;
  BlockBuilder builder;
  builder.Begin(0, 0);
  for (const Pass& pass : part.passes) {
    if (absl::Status status = reader.Append(pass.number, builder); !status.ok()) return status;
  }
  StepTable table;
  StoredContents contents;
  absl::Status status = FillTable(Repeated(*part.choice, part.passes.size()),
                                  {std::make_shared<const v1::Block>(builder.Take())}, table, contents, nullptr);
  if (!status.ok()) return status;
  return table;
}

}  // namespace msprobe::server
