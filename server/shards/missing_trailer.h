#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "server/format/cat.h"
#include "server/shards/missing_shards.h"

namespace msprobe::server {

// Puts the missing shards into the trailing metadata of an answer. NotFound becomes Unavailable: a missing server may
// have what was not found.
inline absl::Status AnswerWith(const MissingShards& missing, absl::Status status, grpc::ServerContext* call) {
  if (missing.empty()) return status;
  call->AddTrailingMetadata(MissingShards::kTrailer, missing.message().SerializeAsString());
  if (!absl::IsNotFound(status)) return status;
  return absl::UnavailableError(Cat(status.message(), "; not asked: ", missing.Text()));
}

}  // namespace msprobe::server
