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
#include "server/ingest/caller_of.h"
#include "server/metrics/metrics.h"

namespace msprobe::server {

// The user at the other end of connections over a unix socket; -1: not known. Set before the first of them.
using SocketUser = std::atomic<int64_t>;

// Looks at every call before its handler, whatever its service, and tells handlers who calls (CallerOf).
//
// With tokens, the header "authorization: Bearer TOKEN" has to name somebody with the method's role. UNAUTHENTICATED:
// it is missing or nobody's. PERMISSION_DENIED: the role is another. Borrowed objects outlive the server. Threads: any.
class Authorizer : public grpc::AuthMetadataProcessor {
 public:
  // tokens null: none are asked for. `user`: of all connections that have this processor; null: they have none.
  Authorizer(Tokens* tokens, Metrics* metrics, RefusalLog* refusals, std::shared_ptr<const SocketUser> user = nullptr)
      : tokens_(tokens), metrics_(metrics), refusals_(refusals), user_(std::move(user)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& given, grpc::AuthContext* context, OutputMetadata* consumed,
                       OutputMetadata* response) override;

  // The name of who sent this "authorization" header; empty: nobody known.
  std::string NameOf(std::string_view header) const;

 private:
  // `bearer`: of the token that the call shows, where it is known.
  grpc::Status Check(const InputMetadata& given, std::optional<Tokens::Bearer>& bearer) const;

  Tokens* const tokens_;
  Metrics* const metrics_;
  RefusalLog* const refusals_;
  const std::shared_ptr<const SocketUser> user_;
};

}  // namespace msprobe::server
