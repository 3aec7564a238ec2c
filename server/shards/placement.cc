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

absl::StatusOr<std::string> Placement::ServerOf(const v1::Hello& hello, const std::string& owner) {
  // OpenSession reports what is wrong.
  if (hello.run().empty() || !RankFits(hello.rank())) return std::string();
  auto known = store_->database().Get(Family::kMeta, SessionKey(hello.session()));
  if (!known.ok()) return known.status();
  if (known->has_value()) return std::string();
  auto shards = ShardsOf(hello.run(), owner);
  if (!shards.ok()) return shards.status();
  if (shards->empty()) return std::string();
  const std::string& shard = ShardOfRank(*shards, hello.run(), hello.rank());
  if (shard == peers_->here()) return std::string();
  const bool follows =
      std::find(hello.capabilities().begin(), hello.capabilities().end(), "redirect") != hello.capabilities().end();
  return follows ? shard : std::string();
}

absl::StatusOr<ShardList> Placement::ShardsOf(const std::string& run, const std::string& owner) {
  const auto stored = [&]() -> absl::StatusOr<std::optional<ShardList>> {
    auto row = store_->catalogue().LookUpRun(run);
    if (!row.ok()) return row.status();
    if (!row->has_value()) return std::optional<ShardList>();
    return std::optional<ShardList>(ShardList((*row)->shards().begin(), (*row)->shards().end()));
  };
  auto known = stored();
  if (!known.ok()) return known.status();
  if (known->has_value()) return **known;
  absl::MutexLock lock(&mu_);
  known = stored();  // another session's thread may have made the run meanwhile
  if (!known.ok()) return known.status();
  if (known->has_value()) return **known;
  return Make(run, owner);
}

absl::StatusOr<ShardList> Placement::Make(const std::string& run, const std::string& owner) {
  using Found = absl::StatusOr<std::optional<PlacedRun>>;
  const std::vector<Peer*> others = peers_->Others(peers_->shards());
  const auto ask = [&] { return Peers::AskAll<Found>(others, [&](Peer& peer) { return peer.FindRun(run); }); };
  std::vector<Found> found = ask();
  const auto gone = [](const Found& answer) { return !answer.ok(); };
  // The servers of a cluster are often started at the same time.
  while (std::any_of(found.begin(), found.end(), gone) && absl::Now() < began_ + kStart) {
    absl::SleepFor(kLook);
    found = ask();
  }
  PlacedRun placed{{}, owner};
  for (size_t i = 0; i < others.size(); ++i) {
    if (!found[i].ok()) {
      LogWarning("run {} is placed without asking {}", run, std::string(found[i].status().message()));
    } else if (found[i]->has_value()) {
      if ((*found[i])->shards.empty()) return ShardList{others[i]->address()};
      placed = **found[i];
      break;
    }
  }
  if (placed.shards.empty()) {
    for (const std::string& shard : ShardsByWeight(peers_->shards(), run)) {
      Peer* const peer = peers_->Find(shard);
      if (peer == nullptr) {
        placed.shards = peers_->shards();
        break;
      }
      auto there = peer->PlaceRun(run, {peers_->shards(), owner});
      if (!there.ok()) continue;
      if (there->shards.empty()) return ShardList{shard};
      placed = *std::move(there);
      break;
    }
  }
  auto row = store_->catalogue().PlaceRun(run, placed.shards, placed.owner);
  if (!row.ok()) return row.status();
  placed = {{row->shards().begin(), row->shards().end()}, row->owner()};
  // A server that cannot be told now will ask when it first hears of the run.
  Peers::AskAll<absl::Status>(peers_->Others(placed.shards),
                              [&](Peer& peer) { return peer.PlaceRun(run, placed).status(); });
  LogInfo("run {} is spread over {} servers", run, placed.shards.size());
  return placed.shards;
}

}  // namespace msprobe::server
