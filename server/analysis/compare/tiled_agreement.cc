#include "server/analysis/compare/tiled_agreement.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/format/tiles/tile_reader.h"

namespace msprobe::server {
namespace {

// All of a layout that is not in TableLayout::Key by way of blocks.
bool SameSettings(const v1::CaptureSettings& a, const v1::CaptureSettings& b) {
  return a.framework() == b.framework() && a.task() == b.task() && a.level() == b.level() &&
         a.summary_mode() == b.summary_mode() && a.high_precision() == b.high_precision();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TiledAgreement>> TiledAgreement::Make(const TileSource& tiles,
                                                                     const std::vector<std::optional<Pair>>& pairs,
                                                                     const CompareOptions& options) {
  if (options.mode == CompareMode::kContent || options.tolerances.by_name() || !options.mapping.empty()) return nullptr;
  std::unique_ptr<TiledAgreement> agreement(new TiledAgreement(tiles, options));
  agreement->passes_.resize(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!pairs[i]) continue;
    if (absl::Status status = agreement->Add(*pairs[i], i); !status.ok()) return status;
  }
  return agreement;
}

absl::StatusOr<const TiledAgreement::Session*> TiledAgreement::SessionOf(const TileSource::Session& key) {
  if (const auto known = sessions_.find(key); known != sessions_.end()) return known->second.get();
  auto settings = tiles_.SettingsOf(key);
  if (!settings.ok()) return settings.status();
  auto session = std::make_unique<Session>();
  session->settings = *std::move(settings);
  absl::Status status = tiles_.ForEachSet(key, [&](uint32_t number, storage::TileSetRow row) {
    session->sets.push_back(std::make_unique<Set>(Set{key, number, std::move(row)}));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  for (const auto& set : session->sets) {
    for (int i = 0; i < set->row.passes_size(); ++i) {
      const storage::TileSetRow::Pass& pass = set->row.passes(i);
      if (pass.forgotten() || pass.blocks().empty()) continue;
      session->steps[pass.step()].push_back({set.get(), static_cast<uint32_t>(i), pass.blocks(0)});
    }
  }
  for (auto& [step, pieces] : session->steps) {
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.first_block < b.first_block; });
  }
  return sessions_.emplace(key, std::move(session)).first->second.get();
}

// Null: a part of the step is in no tile, or its passes do not follow each other; a step with the same passes could
// then be laid out differently.
const std::vector<TiledAgreement::Piece>* TiledAgreement::PiecesOf(const Session& session,
                                                                   const TileSource::Step& step) const {
  const auto found = session.steps.find(step.key.step);
  if (found == session.steps.end()) return nullptr;
  uint32_t next = 0;
  for (const Piece& piece : found->second) {
    for (uint32_t block : piece.set->row.passes(static_cast<int>(piece.pass)).blocks()) {
      if (block != next++) return nullptr;
    }
  }
  return next == step.blocks ? &found->second : nullptr;
}

absl::Status TiledAgreement::Add(const Pair& pair, size_t index) {
  auto target = SessionOf(pair.target.session());
  if (!target.ok()) return target.status();
  auto golden = SessionOf(pair.golden.session());
  if (!golden.ok()) return golden.status();
  const v1::CaptureSettings& settings = (*target)->settings;
  if (!SameSettings(settings, (*golden)->settings)) return absl::OkStatus();
  if (settings.task() == "tensor" && options_.mode == CompareMode::kBest) return absl::OkStatus();
  const std::vector<Piece>* const ours = PiecesOf(**target, pair.target);
  const std::vector<Piece>* const theirs = PiecesOf(**golden, pair.golden);
  if (ours == nullptr || theirs == nullptr || ours->size() != theirs->size()) return absl::OkStatus();
  for (size_t i = 0; i < ours->size(); ++i) {
    const auto layout = [](const Piece& piece) { return piece.set->row.passes(static_cast<int>(piece.pass)).layout(); };
    if (layout((*ours)[i]) != layout((*theirs)[i])) return absl::OkStatus();
  }
  for (size_t i = 0; i < ours->size(); ++i) {
    const Piece& one = (*ours)[i];
    const Piece& other = (*theirs)[i];
    std::unique_ptr<Group>& group = groups_[{one.set, other.set}];
    if (group == nullptr) {
      group = std::make_unique<Group>();
      group->target = one.set;
      group->golden = other.set;
      group->settings.checksums_only = options_.mode == CompareMode::kChecksum;
      group->settings.statistics_only = options_.mode == CompareMode::kStatistics;
      group->settings.statistics_shown = settings.summary_mode() != "xor";
    }
    absl::MutexLock lock(&group->mu);
    passes_[index].emplace_back(group.get(), group->passes.size());
    group->passes.push_back({one.pass, other.pass});
  }
  return absl::OkStatus();
}

bool TiledAgreement::Agree(size_t pair) {
  for (const auto& [group, pass] : passes_[pair]) {
    absl::MutexLock lock(&group->mu);
    if (!group->compared) {
      group->compared = true;
      if (!Compare(*group).ok()) {
        for (ColumnAgreement::Pass& each : group->passes) each.sure = false;
      }
    }
    if (!group->passes[pass].sure) return false;
  }
  return !passes_[pair].empty();
}

absl::Status TiledAgreement::Compare(Group& group) const {
  std::vector<ColumnAgreement::Pass> passes = group.passes;
  const uint32_t run = group.target->session.run;
  const auto structure = [&](uint64_t id) { return tiles_.Structure(run, id); };
  const auto changed = [] { return absl::AbortedError("the tiles of a set were deleted"); };
  // Tiles of a set have the bytes of its rows at most (TilerOptions.set_bytes).
  std::vector<std::string> theirs;
  absl::Status status = tiles_.ForEachTile(group.golden->session, group.golden->number, [&](std::string_view tile) {
    theirs.emplace_back(tile);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (theirs.size() != static_cast<size_t>(group.golden->row.tile_fragments_size())) return changed();
  ColumnAgreement columns(&options_.tolerances, group.settings);
  size_t at = 0;
  status = tiles_.ForEachTile(group.target->session, group.target->number, [&](std::string_view tile) -> absl::Status {
    if (at >= theirs.size()) return changed();
    auto target = TileReader::Open(tile);
    if (!target.ok()) return target.status();
    auto golden = TileReader::Open(theirs[at++]);
    if (!golden.ok()) return golden.status();
    absl::Status compared = columns.Compare(*target, *golden, structure, passes);
    const bool any =
        std::any_of(passes.begin(), passes.end(), [](const ColumnAgreement::Pass& pass) { return pass.sure; });
    return any || !compared.ok() ? compared : absl::CancelledError("no pass is sure any more");
  });
  if (!status.ok()) return status;
  if (at != theirs.size() || at != static_cast<size_t>(group.target->row.tile_fragments_size())) return changed();
  group.passes = std::move(passes);
  return status;
}

}  // namespace msprobe::server
