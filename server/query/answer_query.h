#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "server/query/query_context.h"

namespace msprobe::server {

// Answers a call: runs `work` with a context of its own, whose missing shards go with the answer.
grpc::Status AnswerQuery(const QueryContext& base, grpc::ServerContext* call,
                         absl::FunctionRef<absl::Status(const QueryContext&)> work);

}  // namespace msprobe::server
