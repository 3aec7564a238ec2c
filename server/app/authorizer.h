#pragma once

#include <grpcpp/security/auth_metadata_processor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/access/refusal_log.h"
#include "server/access/tokens.h"
#include "server/ingest/stream/caller_of.h"
#include "server/metrics/metrics.h"

namespace msprobe::server {

// The user id at the other end of a group of unix socket connections; -1: not known. Set before the first of them.
using SocketUser = std::atomic<int64_t>;

// Checks every call of every service before its handler runs, and tells the handler who calls (CallerOf).
//
// With tokens, the header "authorization: Bearer TOKEN" must show a token that has the method's role. UNAUTHENTICATED:
// the token is missing or unknown. PERMISSION_DENIED: it has another role. Borrowed objects outlive the server.
// Threads: any.
class Authorizer : public grpc::AuthMetadataProcessor {
 public:
  // tokens null: no token is needed. `user`: the user of all connections with this processor; null: not a unix socket.
  Authorizer(Tokens* tokens, Metrics* metrics, RefusalLog* refusals, std::shared_ptr<const SocketUser> user = nullptr)
      : tokens_(tokens), metrics_(metrics), refusals_(refusals), user_(std::move(user)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& given, grpc::AuthContext* context, OutputMetadata* consumed,
                       OutputMetadata* response) override;

  // The name that goes with the token in this "authorization" header; empty: the token is unknown.
  std::string NameOf(std::string_view header) const;

 private:
  // Sets `bearer` if the call shows a known token.
  grpc::Status Check(const InputMetadata& given, std::optional<Tokens::Bearer>& bearer) const;

  Tokens* const tokens_;
  Metrics* const metrics_;
  RefusalLog* const refusals_;
  const std::shared_ptr<const SocketUser> user_;
};

}  // namespace msprobe::server
