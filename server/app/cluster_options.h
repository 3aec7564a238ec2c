#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/app/listen_security.h"
#include "server/shards/peers.h"

namespace msprobe::server {

// What is said of a cluster on the command line, or in the environment where a flag is empty.
struct ClusterFlags {
  std::string shards = {};            // --shards, MSPROBE_SHARDS: see ParseShardList
  std::string this_shard = {};        // --this_shard, MSPROBE_THIS_SHARD
  std::string shard_ca = {};          // --shard_ca, MSPROBE_SHARD_CA
  std::string shard_token_file = {};  // --shard_token_file, MSPROBE_SHARD_TOKEN_FILE
};

// Fills what is empty from the environment.
void AddEnvironment(ClusterFlags& flags);

// Without shards: a server that is alone. this_shard may be left out where the host of just one of them is `host_name`
// or begins with it and a dot. With --tls_cert the others are reached by TLS, shown the same certificate, and known by
// --shard_ca, else by --tls_client_ca. InvalidArgument names the flag, the value and what would be right.
absl::StatusOr<PeersOptions> ClusterOf(const ClusterFlags& flags, const SecurityOptions& security, bool embedded,
                                       const std::string& host_name);

}  // namespace msprobe::server
