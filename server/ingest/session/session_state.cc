#include "server/ingest/session/session_state.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/ingest/session/record_identity.h"

namespace msprobe::server {
namespace {

// The steps that may be unfinished, where the session knows them without a look at the others of the run.
absl::StatusOr<std::vector<Steps::Step>> StepsToLoad(const Store& store, const SessionState& state) {
  if (!state.row.knows_open_steps()) return store.steps().Of(state.row.run());
  std::vector<Steps::Step> steps;
  for (uint32_t step : state.row.open_steps()) {
    const StepKey key = state.KeyOf(step);
    auto row = store.database().Find<storage::StepRow>(key.Encode());
    if (!row.ok()) return row.status();
    if (row->has_value()) steps.emplace_back(key, **row);
  }
  return steps;
}

absl::Status CountStoredRecords(const Store& store, uint32_t step, SessionState& state) {
  auto blocks = store.steps().ReadBlocks(state.KeyOf(step));
  if (!blocks.ok()) return blocks.status();
  absl::flat_hash_set<uint64_t>& records = state.steps[step].records;
  for (const auto& block : *blocks) {
    for (int i = 0; i < block->structure_size(); ++i) {
      if (block->fragment_flags(i) & v1::FRAGMENT_CONSTRUCT_ONLY) continue;
      const StructureSummary* structure =
          state.definitions.Structure(block->structures(static_cast<int>(block->structure(i))));
      if (structure != nullptr) records.insert(RecordIdentity(*structure, block->count(i)));
    }
  }
  return absl::OkStatus();
}

absl::Status LoadSteps(const Store& store, bool reopen, SessionState& state) {
  auto steps = StepsToLoad(store, state);
  if (!steps.ok()) return steps.status();
  for (auto& [key, row] : *steps) {
    if (key.epoch != state.row.epoch()) continue;
    const bool lost = row.state() == v1::StepSummary::INCOMPLETE;
    // A step that had ended and lacked payloads only may still get them.
    const bool back =
        reopen && lost && (state.row.state() == storage::SessionRow::LOST || (row.ended() && row.clean()));
    if (row.state() != v1::StepSummary::OPEN && !back) continue;
    if (lost) {
      row.set_state(v1::StepSummary::OPEN);
      row.set_exported(false);
    }
    state.steps[key.step].row = std::move(row);
    if (absl::Status status = CountStoredRecords(store, key.step, state); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status LoadPending(const Store& store, SessionState& state) {
  const std::string prefix = MetaPrefix(MetaSpace::kPending, state.row.session());
  return store.database().ForEach(Family::kMeta, prefix, [&](std::string_view key, std::string_view value) {
    auto row = DecodeAs<storage::PendingRow>(value);
    if (!row.ok()) return row.status();
    state.pending[std::string(key.substr(prefix.size()))].row = *std::move(row);
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<SessionState> SessionState::Load(Store& store, storage::SessionRow row, bool reopen) {
  const uint32_t run = row.run();
  SessionState state(std::move(row), SessionDefinitions(&store.definitions(), run));
  if (absl::Status status = LoadSteps(store, reopen, state); !status.ok()) return status;
  if (absl::Status status = LoadPending(store, state); !status.ok()) return status;
  auto scalar_rows = store.scalars().CountRows(run, state.row.epoch());
  if (!scalar_rows.ok()) return scalar_rows.status();
  state.scalar_rows = *scalar_rows;
  const bool lost = state.row.state() == storage::SessionRow::LOST;
  if (!reopen || (!lost && state.steps.empty())) return state;
  if (lost) state.row.set_state(storage::SessionRow::OPEN);
  ChangeSet changes;
  changes.PutMeta(SessionKey(state.row.session()), state.row);
  for (const auto& [step, open] : state.steps) changes.PutMeta(state.KeyOf(step).Encode(), open.row);
  if (absl::Status status = store.database().Write(changes); !status.ok()) return status;
  return state;
}

StepKey SessionState::KeyOf(uint32_t step) const {
  return StepKey{row.run(), RankCode(row.hello().rank()), step, row.epoch()};
}

bool SessionState::HasPending(uint32_t step) const {
  return std::any_of(pending.begin(), pending.end(), [&](const auto& each) {
    const auto& steps_of = each.second.row.steps();
    return std::count(steps_of.begin(), steps_of.end(), step) > 0;
  });
}

}  // namespace msprobe::server
