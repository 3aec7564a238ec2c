#include "server/query/answer_query.h"

#include "server/ingest/stream/ingest_service.h"
#include "server/shards/missing_trailer.h"

namespace msprobe::server {

grpc::Status AnswerQuery(const QueryContext& base, grpc::ServerContext* call,
                         absl::FunctionRef<absl::Status(const QueryContext&)> work) {
  Activity::Scope busy(base.activity);
  MissingShards missing;
  QueryContext context = base;
  context.missing = &missing;
  const absl::Status status = work(context);
  return ToGrpc(AnswerWith(missing, status, call));
}

}  // namespace msprobe::server
