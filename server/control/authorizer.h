#pragma once

#include <grpcpp/security/auth_metadata_processor.h>

#include "server/access/tokens.h"
#include "server/metrics/metrics.h"

namespace msprobe::server {

// Looks at every call before its handler, whatever its service: the header "authorization: Bearer TOKEN" has to name
// somebody with the method's role. UNAUTHENTICATED: it is missing or nobody's. PERMISSION_DENIED: the role is another.
// Both borrowed objects outlive the server. Threads: any.
class Authorizer : public grpc::AuthMetadataProcessor {
 public:
  Authorizer(Tokens* tokens, Metrics* metrics) : tokens_(tokens), metrics_(metrics) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& given, grpc::AuthContext* context, OutputMetadata* consumed,
                       OutputMetadata* response) override;

  // The name of who sent this "authorization" header; empty: nobody known.
  std::string NameOf(std::string_view header) const;

 private:
  // `name`: of the token that the call shows, where it is known.
  grpc::Status Check(const InputMetadata& given, std::string& name) const;

  Tokens* const tokens_;
  Metrics* const metrics_;
};

}  // namespace msprobe::server
