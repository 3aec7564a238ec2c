#include "server/query/tiled_trend.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/table/statistic.h"
#include "server/analysis/table/table_layouts.h"
#include "server/format/cat.h"
#include "server/format/storage/structure_summary.h"
#include "server/format/storage/tile_reader.h"
#include "server/store/stored_blocks.h"

namespace msprobe::server {

absl::StatusOr<std::unique_ptr<TiledTrend>> TiledTrend::Make(const AnalysisContext& context,
                                                             const std::vector<Step>& steps,
                                                             const std::string& name_glob) {
  std::unique_ptr<TiledTrend> trend(new TiledTrend(context));
  trend->taken_.resize(steps.size());
  std::map<std::pair<uint32_t, uint32_t>, std::vector<size_t>> sessions;
  for (size_t i = 0; i < steps.size(); ++i) sessions[{steps[i].key.rank, steps[i].key.epoch}].push_back(i);
  for (const auto& [session, of] : sessions) {
    if (absl::Status status = trend->AddSession(steps, of, name_glob); !status.ok()) return status;
  }
  return trend;
}

absl::Status TiledTrend::AddSession(const std::vector<Step>& steps, const std::vector<size_t>& of,
                                    const std::string& name_glob) {
  const StepKey session = steps[of[0]].key;
  absl::flat_hash_map<uint32_t, size_t> wanted;
  wanted.reserve(of.size());
  for (size_t index : of) wanted.emplace(steps[index].key.step, index);
  std::string prefix = TileSetKey(session.run, session.rank, session.epoch, 0);
  prefix.resize(prefix.size() - sizeof(uint32_t));
  return context_.store->ForEach(Family::kMeta, prefix,
                                 [&](std::string_view key_of_set, std::string_view value) -> absl::Status {
                                   auto row = std::make_shared<storage::TileSetRow>();
                                   if (absl::Status status = DecodeValue(value, *row); !status.ok()) return status;
                                   std::map<uint64_t, Part> parts;
                                   for (int i = 0; i < row->passes_size(); ++i) {
                                     const storage::TileSetRow::Pass& pass = row->passes(i);
                                     const auto step = wanted.find(pass.step());
                                     if (pass.forgotten() || step == wanted.end()) continue;
                                     if (static_cast<uint32_t>(pass.blocks_size()) != steps[step->second].blocks)
                                       continue;
                                     Part& part = parts[pass.layout()];
                                     part.passes.push_back({static_cast<uint32_t>(i), pass.token(), step->second});
                                   }
                                   for (auto& [layout, part] : parts) {
                                     const std::tuple key(session.rank, session.epoch, layout);
                                     if (!choices_.contains(key)) {
                                       auto chosen = Choose(steps[part.passes[0].step].key, name_glob);
                                       if (!chosen.ok()) return chosen.status();
                                       choices_[key] = *std::move(chosen);
                                     }
                                     for (const Pass& pass : part.passes) taken_[pass.step] = true;
                                     part.session = session;
                                     part.set = ReadU32(key_of_set, prefix.size());
                                     part.row = row;
                                     const Choices& choices = choices_[key];
                                     for (const std::unique_ptr<Choice>& choice : choices) {
                                       part.choice = choice.get();
                                       part.last = choice == choices.back();
                                       parts_.push_back(part);
                                     }
                                   }
                                   return absl::OkStatus();
                                 });
}

absl::StatusOr<TiledTrend::Choices> TiledTrend::Choose(const StepKey& step, const std::string& name_glob) const {
  const Store& store = *context_.store;
  auto session = store.SessionOfEpoch(step.run, step.epoch);
  if (!session.ok()) return session.status();
  auto blocks = ReadStoredBlocks(store, step);
  if (!blocks.ok()) return blocks.status();
  const v1::CaptureSettings& settings = session->hello().settings();
  const auto structure = [&](uint64_t id) { return store.Structure(step.run, id); };
  auto layout = context_.layouts->Get(LayoutKey(settings, *blocks),
                                      [&] { return MakeTableLayout(settings, *blocks, structure); });
  if (!layout.ok()) return layout.status();

  const StepTable& table = (*layout)->table;
  std::vector<int32_t> chosen(table.rows.size(), -1);  // among tensors, or among numbers
  Choices tensors, numbers;
  size_t place = 0;
  for (const Entry& entry : table.entries) {
    for (size_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
      const Row& row = table.rows[i];
      if (!HasStatistics(row) || fnmatch(name_glob.c_str(), std::string(row.name).c_str(), 0) != 0) continue;
      Choices& choices = row.is_tensor ? tensors : numbers;
      if (choices.empty() || choices.back()->rows.size() == kMaxTensors) {
        choices.push_back(std::make_unique<Choice>());
        choices.back()->layout = *layout;
      }
      Choice& choice = *choices.back();
      chosen[i] = static_cast<int32_t>((choices.size() - 1) * kMaxTensors + choice.rows.size());
      choice.rows.push_back(i);
      choice.places.push_back(place++);
      choice.entries.push_back(&entry);
    }
  }
  absl::flat_hash_map<uint64_t, SharedStructure> structures;
  WholeFragment at;
  for (const auto& block : *blocks) {
    for (uint32_t index : block->structure()) {
      const uint64_t id = block->structures(static_cast<int>(index));
      auto known = structures.find(id);
      if (known == structures.end()) {
        auto read = structure(id);
        if (!read.ok()) return read.status();
        known = structures.emplace(id, *std::move(read)).first;
      }
      const StructureSummary& summary = known->second->summary;
      at.leaves = summary.leaves;
      at.integers = summary.integers;
      at.reals = summary.floats;
      if (at.leaf + at.leaves > (*layout)->leaves.size() || at.integer + at.integers > (*layout)->integers.size() ||
          at.real + at.reals > (*layout)->floats.size()) {
        return absl::DataLossError(Cat(step.ToString(), " has other columns than its layout"));
      }
      for (uint32_t i = 0; i < at.leaves; ++i) {
        const int32_t row = (*layout)->leaves[at.leaf + i].row;
        if (row < 0 || chosen[static_cast<size_t>(row)] < 0) continue;
        const auto number = static_cast<size_t>(chosen[static_cast<size_t>(row)]);
        Choice& choice = *tensors[number / kMaxTensors];
        choice.leaves.push_back({at.fragment, i, static_cast<int32_t>(number % kMaxTensors)});
        choice.layout_leaves.push_back(at.leaf + i);
      }
      const auto add_whole = [&](const TableLayout::Scalar& scalar) {
        if (scalar.row < 0 || chosen[static_cast<size_t>(scalar.row)] < 0) return;
        Choice& choice = *numbers[static_cast<size_t>(chosen[static_cast<size_t>(scalar.row)]) / kMaxTensors];
        if (choice.fragments.empty() || choice.fragments.back().fragment != at.fragment) choice.fragments.push_back(at);
      };
      for (size_t i = 0; i < at.integers; ++i) add_whole((*layout)->integers[at.integer + i]);
      for (size_t i = 0; i < at.reals; ++i) add_whole((*layout)->floats[at.real + i]);
      at.leaf += at.leaves;
      at.integer += at.integers;
      at.real += at.reals;
      ++at.fragment;
    }
  }
  if (at.leaf != (*layout)->leaves.size()) {
    return absl::DataLossError(Cat(step.ToString(), " has other leaves than its layout"));
  }
  for (auto& choice : numbers) tensors.push_back(std::move(choice));
  return tensors;
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

absl::StatusOr<StepTable> TiledTrend::Read(size_t index) const {
  const Part& part = parts_[index];
  const std::vector<LeafPlace>& leaves = part.choice->leaves;
  const std::vector<WholeFragment>& fragments = part.choice->fragments;
  struct Tile {
    std::string bytes;
    std::optional<TileReader> reader;
    uint32_t first = 0;  // its first fragment
  };
  std::map<uint32_t, Tile> tiles;
  uint32_t number = 0;
  uint32_t first = 0;
  const auto open = [&](uint32_t fragment) -> absl::StatusOr<Tile*> {  // in order of fragments
    while (number < static_cast<uint32_t>(part.row->tile_fragments_size()) &&
           fragment >= first + part.row->tile_fragments(static_cast<int>(number))) {
      first += part.row->tile_fragments(static_cast<int>(number++));
    }
    Tile& tile = tiles[number];
    if (!tile.reader.has_value()) {
      const TileKey key{part.session.run, part.session.rank, part.session.epoch, part.set, number};
      auto bytes = context_.store->Get(Family::kTiles, key.Encode());
      if (!bytes.ok()) return bytes.status();
      if (!bytes->has_value()) return absl::NotFoundError(Cat("tile ", key.ToString(), " was deleted"));
      tile.bytes = **std::move(bytes);
      auto reader = TileReader::Open(tile.bytes);
      if (!reader.ok()) return reader.status();
      tile.reader = *std::move(reader);
      tile.first = first;
    }
    return &tile;
  };
  std::vector<Tile*> tile_of;  // a choice has leaves or whole fragments
  const auto add_tile = [&](uint32_t fragment) -> absl::Status {
    auto tile = open(fragment);
    if (tile.ok()) tile_of.push_back(*tile);
    return tile.status();
  };
  for (const LeafPlace& leaf : leaves) {
    if (absl::Status status = add_tile(leaf.fragment); !status.ok()) return status;
  }
  for (const WholeFragment& whole : fragments) {
    if (absl::Status status = add_tile(whole.fragment); !status.ok()) return status;
  }
  BlockBuilder builder;
  builder.Begin(0, 0);
  for (const Pass& pass : part.passes) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      absl::Status status =
          tile_of[i]->reader->AppendLeaf(leaves[i].fragment - tile_of[i]->first, leaves[i].leaf, pass.number, builder);
      if (!status.ok()) return status;
    }
    for (size_t i = 0; i < fragments.size(); ++i) {
      Tile& tile = *tile_of[i];
      absl::Status status = tile.reader->AppendFragments(fragments[i].fragment - tile.first, 1, pass.number, builder);
      if (!status.ok()) return status;
    }
  }
  StepTable table;
  StoredContents contents;
  absl::Status status = FillTable(Repeated(*part.choice, part.passes.size()),
                                  {std::make_shared<const v1::Block>(builder.Take())}, table, contents, nullptr);
  if (!status.ok()) return status;
  return table;
}

}  // namespace msprobe::server
