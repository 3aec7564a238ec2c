#include "server/ingest/ingest_service.h"

#include <vector>

#include "server/ingest/ingest_stream.h"

namespace msprobe::server {

grpc::Status ToGrpc(const absl::Status& status) {
  // The codes are the same numbers by design of both.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

IngestService::~IngestService() = default;

grpc::ServerBidiReactor<v1::AgentMessage, v1::ServerMessage>* IngestService::Stream(grpc::CallbackServerContext*) {
  auto stream = std::make_shared<IngestStream>(this);
  bool full = false;
  {
    absl::MutexLock lock(&mu_);
    streams_.insert(stream);
    full = streams_.size() > most_streams_;
    metrics_->Set(Metric::kStreams, static_cast<double>(streams_.size()));
  }
  if (full) {
    metrics_->Add(Metric::kIngestRefused, 1, {"resource_exhausted"});
    stream->End(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "this server has as many streams as it takes"));
    return stream.get();
  }
  stream->Begin();
  return stream.get();
}

void IngestService::Remove(const std::shared_ptr<IngestStream>& stream) {
  absl::MutexLock lock(&mu_);
  streams_.erase(stream);
  metrics_->Set(Metric::kStreams, static_cast<double>(streams_.size()));
}

bool IngestService::EndStreams(absl::Duration timeout) {
  std::vector<std::shared_ptr<IngestStream>> streams;
  {
    absl::MutexLock lock(&mu_);
    streams.assign(streams_.begin(), streams_.end());
  }
  for (const auto& stream : streams) {
    stream->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "this server is shutting down; connect again later"));
  }
  absl::MutexLock lock(&mu_);
  auto gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return streams_.empty(); };
  return mu_.AwaitWithTimeout(absl::Condition(&gone), timeout);
}

}  // namespace msprobe::server
