#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "server/query/query_context.h"

namespace msprobe::server {

// Answers a call: runs `work` with a context of its own, whose missing shards go with the answer.
grpc::Status AnswerQuery(const QueryContext& base, grpc::ServerContext* call,
                         absl::FunctionRef<absl::Status(const QueryContext&)> work);

// What writes to a caller.
template <typename Message>
Send<Message> SendTo(grpc::ServerWriter<Message>* writer) {
  return [writer](const Message& message) { return writer->Write(message); };
}

}  // namespace msprobe::server
