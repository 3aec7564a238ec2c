#include "server/shards/placement.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kStart = absl::Seconds(10);
constexpr absl::Duration kLook = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<std::string> Placement::ServerOf(const v1::Hello& hello) {
  // What is wrong with it is said where it is opened.
  if (hello.run().empty() || !RankFits(hello.rank())) return std::string();
  auto known = store_->Get(Family::kMeta, SessionKey(hello.session()));
  if (!known.ok()) return known.status();
  if (known->has_value()) return std::string();
  auto shards = ShardsOf(hello.run());
  if (!shards.ok()) return shards.status();
  if (shards->empty()) return std::string();
  const std::string& shard = ShardOfRank(*shards, hello.run(), hello.rank());
  if (shard == peers_->here()) return std::string();
  const bool follows =
      std::find(hello.capabilities().begin(), hello.capabilities().end(), "redirect") != hello.capabilities().end();
  return follows ? shard : std::string();
}

absl::StatusOr<ShardList> Placement::ShardsOf(const std::string& run) {
  const auto stored = [&]() -> absl::StatusOr<std::optional<ShardList>> {
    auto row = store_->LookUpRun(run);
    if (!row.ok()) return row.status();
    if (!row->has_value()) return std::optional<ShardList>();
    return std::optional<ShardList>(ShardList((*row)->shards().begin(), (*row)->shards().end()));
  };
  auto known = stored();
  if (!known.ok()) return known.status();
  if (known->has_value()) return **known;
  absl::MutexLock lock(&mu_);
  known = stored();  // another session's thread may have made it meanwhile
  if (!known.ok()) return known.status();
  if (known->has_value()) return **known;
  return Make(run);
}

absl::StatusOr<ShardList> Placement::Make(const std::string& run) {
  using Found = absl::StatusOr<std::optional<ShardList>>;
  const std::vector<Peer*> others = peers_->Others(peers_->shards());
  const auto ask = [&] { return Peers::AskAll<Found>(others, [&](Peer& peer) { return peer.FindRun(run); }); };
  std::vector<Found> found = ask();
  const auto gone = [](const Found& answer) { return !answer.ok(); };
  // Servers of a cluster are often started together.
  while (std::any_of(found.begin(), found.end(), gone) && absl::Now() < began_ + kStart) {
    absl::SleepFor(kLook);
    found = ask();
  }
  ShardList shards;
  for (size_t i = 0; i < others.size(); ++i) {
    if (!found[i].ok()) {
      LogWarning("run {} is placed without asking {}", run, std::string(found[i].status().message()));
    } else if (found[i]->has_value()) {
      if ((*found[i])->empty()) return ShardList{others[i]->address()};
      shards = **found[i];
      break;
    }
  }
  if (shards.empty()) {
    for (const std::string& shard : ShardsByWeight(peers_->shards(), run)) {
      Peer* const peer = peers_->Find(shard);
      if (peer == nullptr) {
        shards = peers_->shards();
        break;
      }
      auto placed = peer->PlaceRun(run, peers_->shards());
      if (!placed.ok()) continue;
      if (placed->empty()) return ShardList{shard};
      shards = *std::move(placed);
      break;
    }
  }
  auto row = store_->PlaceRun(run, shards);
  if (!row.ok()) return row.status();
  shards.assign(row->shards().begin(), row->shards().end());
  // Those that cannot be told now ask when they first hear of the run.
  Peers::AskAll<absl::Status>(peers_->Others(shards), [&](Peer& peer) { return peer.PlaceRun(run, shards).status(); });
  LogInfo("run {} is spread over {} servers", run, shards.size());
  return shards;
}

}  // namespace msprobe::server
