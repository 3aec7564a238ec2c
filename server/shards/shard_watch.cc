#include "server/shards/shard_watch.h"

#include <set>
#include <string>

#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kEvery = absl::Seconds(10);
// Used while a server is gone. The servers of a cluster start together, and the channel retries about as often.
constexpr absl::Duration kEveryWhileGone = absl::Milliseconds(500);

}  // namespace

ShardWatch::ShardWatch(Peers* peers, Metrics* metrics) : peers_(peers), metrics_(metrics) {
  thread_ = std::thread([this] { Loop(); });
}

ShardWatch::~ShardWatch() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void ShardWatch::Loop() {
  std::set<std::string> gone;
  while (true) {
    const std::vector<Peer*> others = peers_->Others(peers_->shards());
    const std::vector<absl::Status> reached =
        Peers::AskAll<absl::Status>(others, [](Peer& peer) { return peer.Reach(); });
    for (size_t i = 0; i < others.size(); ++i) {
      const std::string& address = others[i]->address();
      if (reached[i].ok() && gone.erase(address) > 0) LogInfo("the server {} can be reached again", address);
      if (!reached[i].ok() && gone.insert(address).second) {
        LogWarning("a server of the cluster cannot be reached: {}", std::string(reached[i].message()));
      }
    }
    metrics_->Set(Metric::kShardsUnreachable, static_cast<double>(gone.size()));
    absl::MutexLock lock(&mu_);
    if (mu_.AwaitWithTimeout(absl::Condition(&stopping_), gone.empty() ? kEvery : kEveryWhileGone)) return;
  }
}

}  // namespace msprobe::server
