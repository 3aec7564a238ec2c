#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/app/listen_security.h"
#include "server/shards/peers.h"

namespace msprobe::server {

// The settings of a cluster from the command line; an empty flag may be set in the environment instead.
struct ClusterFlags {
  std::string shards = {};            // --shards, MSPROBE_SHARDS: see ParseShardList
  std::string this_shard = {};        // --this_shard, MSPROBE_THIS_SHARD
  std::string shard_ca = {};          // --shard_ca, MSPROBE_SHARD_CA
  std::string shard_token_file = {};  // --shard_token_file, MSPROBE_SHARD_TOKEN_FILE
};

// Fills the empty flags from the environment.
void AddEnvironment(ClusterFlags& flags);

// Without shards the server is alone. this_shard may be empty if exactly one shard's host is `host_name`, or begins
// with it and a dot. With --tls_cert the servers talk TLS to each other: this one shows its own certificate, and checks
// theirs against --shard_ca or else --tls_client_ca. InvalidArgument names the flag, the value and what is allowed.
absl::StatusOr<PeersOptions> ClusterOf(const ClusterFlags& flags, const SecurityOptions& security, bool embedded,
                                       const std::string& host_name);

}  // namespace msprobe::server
