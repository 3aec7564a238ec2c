#include "server/shards/run_view.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_join.h"
#include "server/format/cat.h"

namespace msprobe::server {

struct RunView::Known {
  bool any = false;                         // some server has the run
  ShardList shards;                         // of the run; empty where it was made by a server that was alone
  std::map<std::string, std::string> gone;  // address, why
};

absl::StatusOr<RunView> RunView::Open(const Shards& shards, const std::string& run) {
  RunView view;
  view.shards_ = shards;
  view.run_ = run;
  if (shards.peers == nullptr) {
    if (auto row = shards.store->catalogue().FindRun(run); !row.ok()) return row.status();
    if (absl::Status status = view.AddHere(); !status.ok()) return status;
    return view;
  }
  Known known;
  auto row = shards.store->catalogue().LookUpRun(run);
  if (!row.ok()) return row.status();
  if (row->has_value()) {
    known.any = true;
    known.shards.assign((*row)->shards().begin(), (*row)->shards().end());
    if (absl::Status status = view.AddHere(); !status.ok()) return status;
  }
  if (absl::Status status = view.Ask(known); !status.ok()) return status;
  if (known.any) {
    view.Show();
    view.Report(known);
    return view;
  }
  std::vector<std::string> reasons;
  for (const auto& [address, why] : known.gone) reasons.push_back(why);
  if (reasons.empty()) {
    return absl::NotFoundError(
        Cat("no run \"", run, "\" on any of the ", shards.peers->shards().size(), " servers of this cluster"));
  }
  return absl::UnavailableError(
      Cat("no run \"", run, "\" on the servers that can be reached; not asked: ", absl::StrJoin(reasons, "; ")));
}

absl::Status RunView::AddHere() {
  auto row = shards_.store->catalogue().LookUpRun(run_);
  if (!row.ok()) return row.status();
  auto shown = ShownSteps(*shards_.store, (*row)->number());
  if (!shown.ok()) return shown.status();
  std::map<uint32_t, int64_t> opened;
  if (shards_.peers != nullptr) {
    auto sessions = shards_.store->catalogue().Sessions((*row)->number());
    if (!sessions.ok()) return sessions.status();
    for (const storage::SessionRow& session : *sessions) {
      open_sessions_ += session.state() == storage::SessionRow::OPEN;
      opened[session.epoch()] = OpenedUnixUs(session);
    }
  }
  steps_.reserve(steps_.size() + shown->size());
  for (ShownStep& step : *shown) {
    if (!opened.empty()) step.opened_unix_us = opened[step.key.epoch];
    steps_.push_back(std::move(step));
  }
  holders_.push_back(nullptr);
  return absl::OkStatus();
}

absl::Status RunView::Ask(Known& known) {
  struct Answer {
    absl::Status status;
    std::optional<ShardList> shards;
    std::vector<shards::RunPart> parts;
  };
  std::set<std::string> asked;
  // A server that has the run may name shards that are no longer of the cluster.
  for (bool more = true; more;) {
    std::vector<Peer*> peers;
    for (Peer* peer : shards_.peers->Others(known.shards.empty() ? shards_.peers->shards() : known.shards)) {
      if (asked.insert(peer->address()).second) peers.push_back(peer);
    }
    more = !peers.empty();
    const std::vector<Answer> answers = Peers::AskAll<Answer>(peers, [&](Peer& peer) {
      Answer answer;
      auto found = peer.FindRun(run_);
      answer.status = found.status();
      if (!found.ok() || !found->has_value()) return answer;
      answer.shards = (*found)->shards;
      answer.status = peer.ReadRun(run_, [&](shards::RunPart& part) { answer.parts.emplace_back().Swap(&part); });
      return answer;
    });
    for (size_t i = 0; i < peers.size(); ++i) {
      const Answer& answer = answers[i];
      if (absl::IsUnavailable(answer.status)) {
        known.gone[peers[i]->address()] = std::string(answer.status.message());
        continue;
      }
      if (!answer.status.ok() && !absl::IsNotFound(answer.status)) return answer.status;
      if (!answer.shards.has_value()) continue;
      known.any = true;
      // One list, unless the run was made twice by servers that could not hear of each other.
      for (const std::string& shard : *answer.shards) {
        if (std::find(known.shards.begin(), known.shards.end(), shard) == known.shards.end()) {
          known.shards.push_back(shard);
        }
      }
      holders_.push_back(peers[i]);
      std::set<uint32_t> ranks;
      for (const shards::RunPart& part : answer.parts) {
        open_sessions_ += part.summary().open_sessions();
        in_use_elsewhere_ |= part.in_use();
        for (const shards::RunPart::Step& step : part.steps()) {
          ShownStep viewed;
          viewed.key = {.run = 0, .rank = step.rank(), .step = step.step(), .epoch = step.epoch()};
          viewed.row = step.row();
          viewed.earlier_epochs.assign(step.earlier_epochs().begin(), step.earlier_epochs().end());
          viewed.peer = peers[i];
          viewed.opened_unix_us = step.opened_unix_us();
          ranks.insert(step.rank());
          steps_.push_back(std::move(viewed));
        }
      }
      shards_.peers->NoteRanks(run_, peers[i]->address(), std::move(ranks));
    }
  }
  return absl::OkStatus();
}

void RunView::Show() {
  const auto misplaced = [](const ShownStep& a, const ShownStep& b) {
    return std::pair(a.key.step, a.key.rank) >= std::pair(b.key.step, b.key.rank);
  };
  // As where there is one server: rows are slow to move.
  if (std::adjacent_find(steps_.begin(), steps_.end(), misplaced) == steps_.end()) return;
  std::stable_sort(steps_.begin(), steps_.end(), [](const ShownStep& a, const ShownStep& b) {
    return std::tuple(a.key.step, a.key.rank, -a.opened_unix_us) <
           std::tuple(b.key.step, b.key.rank, -b.opened_unix_us);
  });
  std::vector<ShownStep> shown;
  for (ShownStep& step : steps_) {
    const bool replaced =
        !shown.empty() && shown.back().key.step == step.key.step && shown.back().key.rank == step.key.rank;
    (replaced ? hidden_ : shown).push_back(std::move(step));
  }
  steps_ = std::move(shown);
}

void RunView::Report(const Known& known) const {
  if (known.gone.empty()) return;
  std::set<uint32_t> here;
  uint32_t highest = 0;
  for (const ShownStep& step : steps_) {
    here.insert(step.key.rank);
    if (RankOfCode(step.key.rank).kind() == v1::Rank::RANK) highest = std::max(highest, step.key.rank);
  }
  for (const auto& [address, why] : known.gone) {
    if (!known.shards.empty() && std::find(known.shards.begin(), known.shards.end(), address) == known.shards.end()) {
      continue;
    }
    v1::MissingShard missing;
    missing.set_shard(address);
    missing.set_why(why);
    missing.set_run(run_);
    std::set<uint32_t> ranks = shards_.peers->LastRanks(run_, address);
    for (uint32_t rank = 0; !known.shards.empty() && rank < highest; ++rank) {
      if (ShardOfRank(known.shards, run_, RankOfCode(rank)) == address) ranks.insert(rank);
    }
    for (uint32_t rank : ranks) {
      if (!here.contains(rank)) *missing.add_ranks() = RankOfCode(rank);
    }
    shards_.missing->Add(std::move(missing));
  }
}

absl::StatusOr<std::unique_ptr<BlockSource>> RunView::Blocks(const ShownStep& step) const {
  if (step.peer != nullptr) return step.peer->ReadStep(run_, step.key);
  return shards_.store->steps().OpenBlocks(step.key, step.row);
}

absl::StatusOr<std::unique_ptr<RecordSource>> RunView::Records(const ShownStep& step) const {
  auto blocks = Blocks(step);
  if (!blocks.ok()) return blocks.status();
  return RecordsOf(*std::move(blocks), run_, step.key);
}

absl::StatusOr<std::unique_ptr<RecordSource>> RunView::Records(uint32_t step, const v1::Rank& rank,
                                                               std::optional<uint32_t> epoch) const {
  // Says what there is where there is no such step.
  if (shards_.peers == nullptr) return shards_.store->steps().Open(run_, step, rank, epoch);
  const uint32_t code = RankCode(rank);
  std::vector<std::string> steps;
  std::set<std::string> ranks;
  for (const std::vector<ShownStep>* list : {&steps_, &hidden_}) {
    for (const ShownStep& viewed : *list) {
      ranks.insert(RankName(RankOfCode(viewed.key.rank)));
      if (viewed.key.rank != code) continue;
      steps.push_back(Cat(viewed.key.step));
      if (viewed.key.step != step) continue;
      if (!epoch.has_value() || *epoch == viewed.key.epoch) return Records(viewed);
      if (std::find(viewed.earlier_epochs.begin(), viewed.earlier_epochs.end(), *epoch) ==
          viewed.earlier_epochs.end()) {
        continue;
      }
      if (viewed.peer == nullptr) return shards_.store->steps().Open(run_, step, rank, epoch);
      ShownStep earlier = viewed;
      earlier.key.epoch = *epoch;
      return Records(earlier);
    }
  }
  const std::string none = Cat("run \"", run_, "\" has no ");
  if (steps.empty()) {
    return absl::NotFoundError(
        Cat(none, RankName(rank), "; it has ", ranks.empty() ? "none" : absl::StrJoin(ranks, ", ")));
  }
  const size_t count = steps.size();
  if (count > 20) steps.resize(20);
  return absl::NotFoundError(Cat(none, epoch.has_value() ? Cat("epoch ", *epoch, " of ") : "", "step ", step, " of ",
                                 RankName(rank), "; it has ", absl::StrJoin(steps, ", "), count > 20 ? ", ..." : ""));
}

}  // namespace msprobe::server
