#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/shards/missing_shards.h"
#include "server/shards/peer.h"

namespace msprobe::server {

// How a server of a cluster knows the others, and shows them who it is. Files are PEM and read again when they change.
struct PeersOptions {
  ShardList shards;        // all servers of the cluster, this one among them
  std::string this_shard;  // as it stands in `shards`
  std::string ca;          // authority of the others' certificates; empty: no TLS
  std::string cert, key;   // shown to them; both or neither, with ca
  std::string token_file;  // whose first word is shown to them; empty: none
  int reload_seconds = 60;
};

// The other servers of the cluster.
// Threads: any.
class Peers {
 public:
  explicit Peers(PeersOptions options);

  const ShardList& shards() const { return options_.shards; }
  const std::string& here() const { return options_.this_shard; }
  // Of an address that need not be in shards(): a run may have been made when the cluster was another. Null: this
  // server.
  Peer* Find(const std::string& address);
  // Those of a list, without this server.
  std::vector<Peer*> Others(const ShardList& shards);

  // Calls `ask` for each of them, side by side; gives the answers in their order.
  template <typename Answer>
  static std::vector<Answer> AskAll(const std::vector<Peer*>& peers, const std::function<Answer(Peer&)>& ask);

  // Which ranks (RankCode) of a run a shard had when it was last asked: what is said where it cannot be asked.
  void NoteRanks(const std::string& run, const std::string& shard, std::set<uint32_t> ranks);
  std::set<uint32_t> LastRanks(const std::string& run, const std::string& shard) const;

 private:
  const PeersOptions options_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  mutable absl::Mutex mu_;
  std::map<std::string, std::unique_ptr<Peer>> peers_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, std::string>, std::set<uint32_t>> ranks_ ABSL_GUARDED_BY(mu_);
};

template <typename Answer>
std::vector<Answer> Peers::AskAll(const std::vector<Peer*>& peers, const std::function<Answer(Peer&)>& ask) {
  std::vector<std::optional<Answer>> answers(peers.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < peers.size(); ++i) threads.emplace_back([&, i] { answers[i] = ask(*peers[i]); });
  if (!peers.empty()) answers[0] = ask(*peers[0]);
  for (std::thread& thread : threads) thread.join();
  std::vector<Answer> given;
  for (std::optional<Answer>& answer : answers) given.push_back(*std::move(answer));
  return given;
}

}  // namespace msprobe::server
