#include "server/analysis/divergence/first_divergence.h"

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/analysis/compare/communication.h"
#include "server/analysis/compare/in_order.h"
#include "server/analysis/compare/tiled_agreement.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/analysis/table/later_steps.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/compared_rows.h"
#include "server/query/opened_source.h"
#include "server/query/side_notes.h"
#include "server/stored/stored_tiles.h"

namespace msprobe::server {
namespace {

v1::Divergence Message(const Divergence& found, const StepPair& steps, const PlacePair& pair) {
  const StepTable& target = steps.target->table();
  const StepTable& golden = steps.golden->table();
  const Entry* const ours = found.target_entry < 0 ? nullptr : &target.entries[static_cast<size_t>(found.target_entry)];
  const Entry* const theirs =
      found.golden_entry < 0 ? nullptr : &golden.entries[static_cast<size_t>(found.golden_entry)];
  const Entry& entry = ours != nullptr ? *ours : *theirs;
  v1::Divergence message;
  message.set_op(std::string(entry.name));
  if (ours != nullptr && theirs != nullptr && ours->name != theirs->name) {
    message.set_golden_op(std::string(theirs->name));
  }
  message.set_module(std::string(ModuleOf(entry)));
  message.set_step(pair.target.first);
  *message.mutable_rank() = RankOfPlace(pair.target);
  message.set_token(entry.token);
  message.set_blame(static_cast<v1::Blame>(found.blame));
  message.set_culprit(found.culprit);
  message.set_in_target(ours != nullptr);
  for (const ComparedRow& row : found.rows) {
    FillComparedTensor(target, golden, entry, row, found.contents, pair.target, *message.add_evidence());
  }
  const StepTable& side = ours != nullptr ? target : golden;
  if (entry.stack >= 0) {
    for (const std::string& line : side.stacks[static_cast<size_t>(entry.stack)]) message.add_stack(line);
  }
  message.set_collectives_before(found.collectives_before);
  for (int32_t passed : found.path) message.add_path(std::string(target.entries[static_cast<size_t>(passed)].name));
  if (found.culprit_row == kNoRow) return message;
  const Row& culprit = target.rows[static_cast<size_t>(found.culprit_row)];
  if (culprit.edge == EdgeKind::kUnknown) return message;
  v1::Edge& edge = *message.mutable_edge();
  edge.set_kind(static_cast<v1::EdgeKind>(culprit.edge));
  if (culprit.producer < 0) return message;
  const auto producer = static_cast<uint32_t>(culprit.producer);
  edge.set_record(std::string(target.entries[target.EntryOf(producer)].name));
  edge.set_tensor(std::string(target.rows[producer].name));
  return message;
}

// One rank's, with what places it among those of other ranks.
struct Found {
  v1::Divergence message;
  RankDivergence place;
};

Found FoundIn(const Divergence& divergence, const StepPair& steps, const LayoutPair& pair) {
  Found found{Message(divergence, steps, pair.shown()), {divergence.blame, divergence.collectives_before, {}, {}}};
  const auto& [kind, rank] = pair.shown().target.second;
  if (pair.target.size() != 1 || kind != v1::Rank::RANK || divergence.target_entry < 0) return found;
  const StepTable& table = steps.target->table();
  found.place.uses = UsesOfChannels(table, rank, divergence.target_entry);
  if (divergence.blame == Blame::kCommunication) {
    found.place.through = ChannelsOf(table, table.entries[static_cast<size_t>(divergence.target_entry)], rank);
  }
  return found;
}

// Where both steps of a pair are stored here; nothing for pairs of several ranks.
std::vector<std::optional<TiledAgreement::Pair>> StoredPairs(const StepTables& target, const StepTables& golden,
                                                             const std::vector<LayoutPair>& pairs) {
  std::vector<std::optional<TiledAgreement::Pair>> stored(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].target.size() != 1 || pairs[i].golden.size() != 1) continue;
    const auto ours = target.FindStored(pairs[i].target[0]);
    const auto theirs = golden.FindStored(pairs[i].golden[0]);
    if (ours && theirs) stored[i] = TiledAgreement::Pair{*ours, *theirs};
  }
  return stored;
}

}  // namespace

absl::Status FirstDivergence(const AnalysisContext& context, const v1::FirstDivergenceRequest& request,
                             const std::function<bool()>& cancelled, const Send<v1::FirstDivergenceResponse>& send) {
  auto compared = CompareOptionsOf(OptionsIn(request), request.scope().name_glob());
  if (!compared.ok()) return compared.status();
  compared->content.cancelled = cancelled;
  std::atomic<bool> is_named{request.scope().name_glob().empty()};  // whether a record has the name that is asked for
  if (compared->wanted) {
    compared->wanted = [&is_named, asked = std::move(compared->wanted)](std::string_view name) {
      if (!asked(name)) return false;
      is_named = true;
      return true;
    };
  }
  const DivergenceOptions options{.comparison = *std::move(compared), .ignore_missing = request.ignore_missing()};
  auto target = OpenedSource::Open(request.target(), context);
  if (!target.ok()) return target.status();
  auto opened = OpenedSource::Open(request.golden(), context);
  if (!opened.ok()) return opened.status();
  const LaterSteps golden(*opened, request.golden_step_offset());
  std::vector<UnpairedPlace> unpaired;
  auto pairs = PairLayouts(*target, golden, ScopeOf(request.scope()), options.comparison.across_layouts, unpaired);
  if (!pairs.ok()) return pairs.status();
  v1::FirstDivergenceResponse response;
  for (const UnpairedPlace& lonely : unpaired) {
    *response.mutable_unpaired() = UnpairedMessage(lonely);
    if (!send(response)) return PeerGone();
  }
  for (std::string& note : NotesOfMissingRecords(*target, *opened, *pairs, request.golden_step_offset())) {
    response.set_note(std::move(note));
    if (!send(response)) return PeerGone();
  }
  const StoredTiles tiles(context.store, context.layouts);
  auto agreement = TiledAgreement::Make(tiles, StoredPairs(*target, golden, *pairs), options.comparison);
  if (!agreement.ok()) return agreement.status();
  // Several pairs: one thread a pair; otherwise one a side.
  const int threads = pairs->size() > 1 ? context.threads : 1;
  constexpr DumpReading kWhole{.stacks = true, .construct = true};
  struct Searched {
    std::string note;
    std::optional<Found> found;
  };
  const auto search = [&](size_t index) -> absl::StatusOr<Searched> {
    if (cancelled()) return PeerGone();
    Searched searched;
    if (is_named && *agreement != nullptr && (*agreement)->Agree(index)) return searched;
    const LayoutPair& pair = (*pairs)[index];
    auto steps = ReadLayouts(*target, golden, pair, kWhole, options.comparison, threads == 1);
    if (!steps.ok()) return steps.status();
    DivergenceOptions of_pair = options;
    for (const auto& place : pair.target) of_pair.target_lacks_records |= target->LacksRecords(place);
    for (const auto& [step, rank] : pair.golden) {
      of_pair.golden_lacks_records |= opened->LacksRecords({step + request.golden_step_offset(), rank});
    }
    auto found = FindFirstDivergence(*steps->target, *steps->golden, of_pair);
    if (!found.ok()) return found.status();
    searched.note = NoteOfLevels(steps->target->table(), steps->golden->table());
    if (*found) searched.found = FoundIn(**found, *steps, pair);
    return searched;
  };
  std::vector<v1::Divergence> messages;
  std::vector<RankDivergence> places;
  bool levels_told = false;
  const auto take = [&](size_t index, Searched searched) -> absl::StatusOr<bool> {
    if (!messages.empty() && messages[0].step() != (*pairs)[index].target.front().first) return false;
    if (!searched.note.empty() && !std::exchange(levels_told, true)) {
      response.set_note(std::move(searched.note));
      if (!send(response)) return PeerGone();
    }
    if (searched.found) {
      messages.push_back(searched.found->message);
      places.push_back(std::move(searched.found->place));
      *response.mutable_divergence() = std::move(searched.found->message);
      if (!send(response)) return PeerGone();
    }
    response.mutable_progress()->set_steps_done(index + 1);
    response.mutable_progress()->set_steps_total(pairs->size());
    if (!send(response)) return PeerGone();
    return true;
  };
  if (absl::Status status = InOrder<Searched>::Run(pairs->size(), threads, search, take); !status.ok()) {
    return status;
  }
  if (!is_named) return absl::NotFoundError(Cat("no record of either side is called ", request.scope().name_glob()));
  if (messages.empty()) return absl::OkStatus();
  v1::Divergence& first = messages[FirstAcrossRanks(places)];
  first.set_first(true);
  *response.mutable_divergence() = std::move(first);
  return send(response) ? absl::OkStatus() : PeerGone();
}

}  // namespace msprobe::server
