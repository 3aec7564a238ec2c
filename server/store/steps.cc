#include "server/store/steps.h"

#include <set>
#include <string_view>

#include "absl/strings/str_join.h"
#include "server/format/cat.h"
#include "server/store/session_order.h"
#include "server/store/stored_blocks.h"
#include "server/store/tiles/tiled_passes.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxNamed = 20;

std::string Listed(const std::set<std::string>& names, const std::vector<std::string>& in_order) {
  if (names.empty()) return "none";
  return Cat(absl::StrJoin(in_order, ", "), names.size() > kMaxNamed ? ", ..." : "");
}

}  // namespace

// Names only the first of what there is: it reads some tens of keys and the run's sessions, however many steps there
// are.
absl::Status Steps::NoSuchStep(const storage::RunRow& run, uint32_t step, const v1::Rank& rank,
                               std::optional<uint32_t> epoch) const {
  const std::string where = Cat("run \"", run.name(), "\" has no ");
  std::set<std::string> seen;
  std::vector<std::string> named;
  const auto add = [&](std::string name) {
    if (!seen.insert(name).second) return true;
    if (seen.size() > kMaxNamed) return false;
    named.push_back(std::move(name));
    return true;
  };
  const auto enough = absl::CancelledError("enough");
  const auto list = [&](const std::string& prefix, auto name_of) {
    absl::Status status = database_->ForEach(Family::kMeta, prefix, [&](std::string_view key, std::string_view) {
      auto found = StepKey::Decode(key);
      if (!found.ok()) return found.status();
      return add(name_of(*found)) ? absl::OkStatus() : enough;
    });
    return absl::IsCancelled(status) ? absl::OkStatus() : status;
  };
  const std::string of_rank = MetaPrefix(MetaSpace::kStep, run.number(), RankCode(rank));
  if (epoch.has_value()) {
    std::string of_step = of_rank;
    AppendU32(of_step, step);
    absl::Status status = list(of_step, [](const StepKey& key) { return Cat(key.epoch); });
    if (!status.ok()) return status;
    if (!named.empty()) {
      return absl::NotFoundError(
          Cat(where, "epoch ", *epoch, " of step ", step, " of ", RankName(rank), "; it has ", Listed(seen, named)));
    }
  }
  absl::Status status = list(of_rank, [](const StepKey& key) { return Cat(key.step); });
  if (!status.ok()) return status;
  if (!named.empty()) {
    return absl::NotFoundError(Cat(where, "step ", step, " of ", RankName(rank), "; it has ", Listed(seen, named)));
  }
  auto sessions = catalogue_->Sessions(run.number());
  if (!sessions.ok()) return sessions.status();
  std::set<uint32_t> ranks;
  for (const storage::SessionRow& session : *sessions) ranks.insert(RankCode(session.hello().rank()));
  for (uint32_t code : ranks) {
    if (!add(RankName(RankOfCode(code)))) break;
  }
  return absl::NotFoundError(Cat(where, RankName(rank), "; it has ", Listed(seen, named)));
}

absl::StatusOr<std::vector<Steps::Step>> Steps::Of(uint32_t run) const {
  return Under(MetaPrefix(MetaSpace::kStep, run));
}

absl::StatusOr<std::vector<Steps::Step>> Steps::Of(uint32_t run, const v1::Rank& rank, uint32_t step) const {
  std::string prefix = MetaPrefix(MetaSpace::kStep, run, RankCode(rank));
  AppendU32(prefix, step);
  return Under(prefix);
}

absl::StatusOr<std::vector<Steps::Step>> Steps::Under(const std::string& prefix) const {
  std::vector<Step> steps;
  absl::Status status =
      database_->ForEach(Family::kMeta, prefix, [&](std::string_view key, std::string_view value) -> absl::Status {
        auto step = StepKey::Decode(key);
        if (!step.ok()) return step.status();
        steps.emplace_back().first = *step;
        return DecodeValue(value, steps.back().second);
      });
  if (!status.ok()) return status;
  return steps;
}

absl::StatusOr<std::unique_ptr<RecordSource>> Steps::Open(const std::string& run_name, uint32_t step,
                                                          const v1::Rank& rank, std::optional<uint32_t> epoch) const {
  auto run = catalogue_->FindRun(run_name);
  if (!run.ok()) return run.status();
  std::optional<Step> there;
  SessionOrder order(catalogue_, run->number());
  std::string prefix = MetaPrefix(MetaSpace::kStep, run->number(), RankCode(rank));
  AppendU32(prefix, step);
  absl::Status looked = database_->ForEach(Family::kMeta, prefix, [&](std::string_view key, std::string_view value) {
    auto found = StepKey::Decode(key);
    if (!found.ok() || (epoch.has_value() && found->epoch != *epoch)) return found.status();
    if (there.has_value()) {
      auto later = order.BeganLater(found->epoch, there->first.epoch);
      if (!later.ok() || !*later) return later.status();
    }
    auto row = DecodeAs<storage::StepRow>(value);
    if (!row.ok()) return row.status();
    there = {*found, *std::move(row)};
    return absl::OkStatus();
  });
  if (!looked.ok()) return looked;
  if (!there.has_value()) return NoSuchStep(*run, step, rank, epoch);
  auto blocks = OpenBlocks(there->first, there->second);
  if (!blocks.ok()) return blocks.status();
  return RecordsOf(*std::move(blocks), run->name(), there->first);
}

absl::StatusOr<std::unique_ptr<BlockSource>> Steps::OpenBlocks(const StepKey& step, const storage::StepRow& row) const {
  auto session = catalogue_->SessionOfEpoch(step.run, step.epoch);
  if (!session.ok()) return session.status();
  if (session->has_first_settings()) {
    *session->mutable_hello()->mutable_settings() = row.has_settings() ? row.settings() : session->first_settings();
  }
  return std::make_unique<StoredBlocks>(database_, definitions_, payloads_, step, row, *std::move(session));
}

absl::StatusOr<std::vector<std::shared_ptr<const v1::Block>>> Steps::ReadBlocks(const StepKey& step) const {
  return ReadStoredBlocks(*database_, step);
}

absl::Status Steps::AddDeletion(const StepKey& step, ChangeSet& changes) {
  ++deletions_;
  absl::Status status = database_->ForEach(Family::kRows, RowKey::StepPrefix(step.run, step.rank, step.step),
                                           [&](std::string_view key, std::string_view) {
                                             auto row = RowKey::Decode(key);
                                             if (row.ok() && row->epoch == step.epoch)
                                               changes.Delete(Family::kRows, std::string(key));
                                             return row.status();
                                           });
  if (!status.ok()) return status;
  if (status = AddPassDeletion(*database_, step, changes); !status.ok()) return status;
  changes.Delete(Family::kMeta, step.Encode());
  changes.Delete(Family::kMeta, step.Encode(MetaSpace::kUntiled));
  changes.Delete(Family::kMeta, step.Encode(MetaSpace::kTiled));
  std::string faults = FaultKey(step, 0);
  faults.resize(faults.size() - 4);
  changes.DeletePrefix(Family::kMeta, faults);
  return absl::OkStatus();
}

absl::Status Steps::AddRankMove(uint32_t run, uint32_t epoch, uint32_t from, uint32_t to, ChangeSet& changes) {
  ++deletions_;
  // Each of these key spaces has run | rank behind `skip` bytes, and the epoch somewhere.
  auto move = [&](Family family, const std::string& prefix, size_t skip, size_t epoch_at) {
    return database_->ForEach(family, prefix, [&](std::string_view key, std::string_view value) {
      if (key.size() < epoch_at + 4 || ReadU32(key, epoch_at) != epoch) return absl::OkStatus();
      std::string moved(key.substr(0, skip + 4));
      AppendU32(moved, to);
      moved.append(key.substr(skip + 8));
      changes.Delete(family, std::string(key));
      changes.Put(family, std::move(moved), std::string(value));
      return absl::OkStatus();
    });
  };
  absl::Status status = move(Family::kRows, RowKey::RankPrefix(run, from), 0, 16);
  for (MetaSpace space : {MetaSpace::kStep, MetaSpace::kUntiled, MetaSpace::kTiled}) {
    if (status.ok()) status = move(Family::kMeta, MetaPrefix(space, run, from), 1, 13);
  }
  if (status.ok()) status = move(Family::kTiles, RowKey::RankPrefix(run, from), 0, 8);
  if (status.ok()) status = move(Family::kMeta, MetaPrefix(MetaSpace::kTileSet, run, from), 1, 9);
  if (status.ok()) status = move(Family::kMeta, MetaPrefix(MetaSpace::kFault, run, from), 1, 13);
  return status;
}

absl::StatusOr<uint64_t> Steps::AddRunDeletion(uint32_t run, ChangeSet& changes) {
  ++deletions_;
  auto steps = Of(run);
  if (!steps.ok()) return steps.status();
  uint64_t freed = 0;
  for (const Step& step : *steps) freed += step.second.row_bytes();
  std::string rows;
  AppendU32(rows, run);
  changes.DeletePrefix(Family::kRows, rows);
  changes.DeletePrefix(Family::kTiles, rows);
  for (MetaSpace space :
       {MetaSpace::kStep, MetaSpace::kFault, MetaSpace::kUntiled, MetaSpace::kTiled, MetaSpace::kTileSet}) {
    changes.DeletePrefix(Family::kMeta, MetaPrefix(space, run));
  }
  return freed;
}

}  // namespace msprobe::server
