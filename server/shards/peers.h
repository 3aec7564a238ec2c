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

// How the servers of a cluster know each other. Files are PEM and are read again when they change.
struct PeersOptions {
  ShardList shards;         // all servers of the cluster, this one among them
  std::string this_shard;   // this server's entry in `shards`
  std::string ca;           // authority of the other servers' certificates; empty: no TLS
  std::string cert, key;    // shown to the other servers; both or neither, and only with ca
  std::string token_file;   // its first word is shown to the other servers; empty: no token
  int reload_seconds = 60;  // how often the files are checked
};

// The other servers of the cluster.
// Threads: any.
class Peers {
 public:
  explicit Peers(PeersOptions options);

  const ShardList& shards() const { return options_.shards; }
  const std::string& here() const { return options_.this_shard; }
  // The server at an address, which need not be in shards(): the run may be from a time when the cluster had other
  // servers. Null: this server.
  Peer* Find(const std::string& address);
  // The servers of a list, without this one.
  std::vector<Peer*> Others(const ShardList& shards);

  // Calls `ask` for each server, side by side. The answers are in the order of `peers`.
  template <typename Answer>
  static std::vector<Answer> AskAll(const std::vector<Peer*>& peers, const std::function<Answer(Peer&)>& ask);

  // The ranks (RankCode) of a run that a shard had when it last answered, for answers while it cannot be reached.
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
