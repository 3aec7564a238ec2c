#include "server/app/cluster_options.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/strings/str_join.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

absl::StatusOr<std::string> ThisOf(const ShardList& shards, const std::string& given, const std::string& host_name) {
  const std::string list = absl::StrJoin(shards, ", ");
  if (!given.empty()) {
    if (std::find(shards.begin(), shards.end(), given) != shards.end()) return given;
    return BadFlag("this_shard", given, Cat(" is none of --shards, which are ", list));
  }
  std::vector<std::string> mine;
  for (const std::string& shard : shards) {
    if (shard.starts_with(host_name + ":") || shard.starts_with(host_name + ".")) mine.push_back(shard);
  }
  if (mine.size() == 1) return mine[0];
  return BadFlag(
      "this_shard", "",
      Cat(" is missing, and the name of this host, ", host_name, ", does not say which of ", list, " this server is"));
}

bool IsHere(const std::string& shard) {
  if (shard.starts_with("unix:")) return true;
  const std::optional<HostPort> host = ParseHostPort(shard);
  return host.has_value() && IsLoopback(*host);
}

absl::Status CheckReadable(std::string_view flag, const std::string& path) {
  if (path.empty() || std::ifstream(path)) return absl::OkStatus();
  return BadFlag(flag, path, " cannot be read");
}

}  // namespace

void AddEnvironment(ClusterFlags& flags) {
  for (const auto& [variable, value] : {std::pair("MSPROBE_SHARDS", &flags.shards),
                                        {"MSPROBE_THIS_SHARD", &flags.this_shard},
                                        {"MSPROBE_SHARD_CA", &flags.shard_ca},
                                        {"MSPROBE_SHARD_TOKEN_FILE", &flags.shard_token_file}}) {
    const char* const environment = std::getenv(variable);
    if (value->empty() && environment != nullptr) *value = environment;
  }
}

absl::StatusOr<PeersOptions> ClusterOf(const ClusterFlags& flags, const SecurityOptions& security, bool embedded,
                                       const std::string& host_name) {
  PeersOptions options;
  auto shards = ParseShardList(flags.shards);
  if (!shards.ok()) return BadFlag("shards", flags.shards, Cat(" is not valid: ", shards.status().message()));
  options.shards = *std::move(shards);
  if (options.shards.empty()) {
    for (const auto& [flag, value] : {std::pair("this_shard", flags.this_shard),
                                      {"shard_ca", flags.shard_ca},
                                      {"shard_token_file", flags.shard_token_file}}) {
      if (!value.empty()) return BadFlag(flag, value, " needs --shards, the addresses of all servers of the cluster");
    }
    return options;
  }
  if (embedded) return BadFlag("shards", flags.shards, " is not for --embedded servers, which are alone");
  auto mine = ThisOf(options.shards, flags.this_shard, host_name);
  if (!mine.ok()) return mine.status();
  options.this_shard = *std::move(mine);
  for (const auto& [flag, path] :
       {std::pair("shard_ca", flags.shard_ca), {"shard_token_file", flags.shard_token_file}}) {
    if (absl::Status status = CheckReadable(flag, path); !status.ok()) return status;
  }
  if (!security.tls_cert.empty()) {
    options.ca = flags.shard_ca.empty() ? security.tls_client_ca : flags.shard_ca;
    options.cert = security.tls_cert;
    options.key = security.tls_key;
    if (options.ca.empty()) {
      return BadFlag("shard_ca", "",
                     " is missing: the authority of the other servers' certificates, as --tls_cert is given");
    }
  } else {
    options.ca = flags.shard_ca;
  }
  if (!security.tokens.empty() && flags.shard_token_file.empty()) {
    return BadFlag("shard_token_file", "",
                   " is missing: with --tokens the servers of a cluster show each other one of role admin");
  }
  options.token_file = flags.shard_token_file;
  for (const std::string& shard : options.shards) {
    if (options.token_file.empty() || !options.ca.empty() || shard == options.this_shard || IsHere(shard)) continue;
    return BadFlag(
        "shard_token_file", options.token_file,
        Cat(" would go to ", shard, " readable by all on the way; give --tls_cert, --tls_key and --shard_ca"));
  }
  options.reload_seconds = security.tls_reload_seconds;
  return options;
}

}  // namespace msprobe::server
