#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/format/storage/key.h"

namespace msprobe::server {

// The addresses of the servers of a cluster: sorted, each once.
using ShardList = std::vector<std::string>;

// The facts that are fixed when a run is made.
struct PlacedRun {
  ShardList shards;   // empty: a server that was alone made the run
  std::string owner;  // Caller::identity; empty: everybody may send to the run
};

// Parses "host:port,unix:/path,...", or "@FILE" with one or more addresses on each line ('#' begins a comment).
// InvalidArgument: an address is malformed or occurs twice. NotFound: the file does not exist.
absl::StatusOr<ShardList> ParseShardList(const std::string& text);

// The shard that a rank of a run is bound to: the one with the highest random weight (rendezvous hashing). So if two
// lists differ in one shard, they bind all ranks alike except those of that shard. The weight is the XXH3-64 (seed 0)
// of shard, zero byte, run, zero byte and the rank's code (key.h) in four bytes, highest first. docs/sizing.md promises
// this; it never changes. `shards` is not empty.
const std::string& ShardOfRank(const ShardList& shards, std::string_view run, const v1::Rank& rank);

// The order in which servers are asked to make a run, the same on every server. Weights as above, but without a rank.
ShardList ShardsByWeight(const ShardList& shards, std::string_view run);

}  // namespace msprobe::server
