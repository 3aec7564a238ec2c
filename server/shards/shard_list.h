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

// What was settled when a run was made.
struct PlacedRun {
  ShardList shards;   // none: it was made by a server that was alone
  std::string owner;  // Caller::identity; empty: everybody sends to it
};

// Of "host:port,unix:/path,...", or of "@FILE" with one or several a line ('#' begins a comment).
// InvalidArgument: an address that is none, one that stands twice; NotFound: the file.
absl::StatusOr<ShardList> ParseShardList(const std::string& text);

// Which shard a rank of a run is bound to: highest random weight (rendezvous), so that lists that differ in one shard
// bind all but that shard's ranks alike. The weight is the XXH3-64 (seed 0) of shard, zero byte, run, zero byte and the
// rank's code (key.h) in four bytes, highest first. docs/sizing.md promises this; it never changes.
// `shards` is not empty.
const std::string& ShardOfRank(const ShardList& shards, std::string_view run, const v1::Rank& rank);

// In the order in which they are asked to make a run, the same on every server: weights as above, without a rank.
ShardList ShardsByWeight(const ShardList& shards, std::string_view run);

}  // namespace msprobe::server
