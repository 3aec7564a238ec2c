#include "server/ingest/stream/ingest_service.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "server/format/cat.h"
#include "server/ingest/stream/caller_of.h"
#include "server/ingest/stream/ingest_stream.h"

namespace msprobe::server {
namespace {

// Of nice(2): a ninth of the processor time of a thread that competes.
constexpr int kApplyNiceness = 10;

// One a core, but enough that some that wait for another server (a hello) do not hold up the others.
int ApplyThreads() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 4u, 16u)); }

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  // The codes are the same numbers by design of both.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

IngestService::IngestService(Sessions* sessions, Database* database, Metrics* metrics, IngestOptions options)
    : options_(std::move(options)),
      sessions_(sessions),
      database_(database),
      metrics_(metrics),
      tell_(1, 0),
      apply_(ApplyThreads(), kApplyNiceness) {}

IngestService::~IngestService() = default;

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* IngestService::Stream(
    grpc::CallbackServerContext* context) {
  const Caller caller = CallerOf(*context);
  auto stream = std::make_shared<IngestStream>(this, caller);
  std::string refusal;
  {
    absl::MutexLock lock(&mu_);
    streams_.insert(stream);
    ++peers_[caller.peer];
    refusal = Refusal(caller.peer);
    metrics_->Set(Metric::kStreams, static_cast<double>(streams_.size()));
  }
  if (!refusal.empty()) {
    metrics_->Add(Metric::kIngestRefused, 1, {"resource_exhausted"});
    refusals_.Note("a stream", caller.peer, refusal);
    stream->End(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, refusal));
    return stream.get();
  }
  stream->Begin();
  return stream.get();
}

void IngestService::Remove(const std::shared_ptr<IngestStream>& stream) {
  absl::MutexLock lock(&mu_);
  streams_.erase(stream);
  metrics_->Set(Metric::kStreams, static_cast<double>(streams_.size()));
  if (const auto found = peers_.find(stream->caller().peer); --found->second == 0) peers_.erase(found);
}

std::string IngestService::Refusal(const std::string& peer) const {
  if (options_.max_streams != 0 && streams_.size() > options_.max_streams) {
    return Cat("this server has ", options_.max_streams, " streams, which is its limit (twice --max_sessions)");
  }
  if (options_.max_streams_of_a_peer != 0 && peers_.at(peer) > options_.max_streams_of_a_peer) {
    return Cat("this server has ", options_.max_streams_of_a_peer, " streams of ", peer,
               ", which is the limit for one (--max_streams_per_peer)");
  }
  return "";
}

size_t IngestService::streams() const {
  absl::MutexLock lock(&mu_);
  return streams_.size();
}

uint64_t IngestService::bytes_per_second() const {
  absl::MutexLock lock(&mu_);
  return bytes_per_second_;
}

void IngestService::Slow(uint64_t bytes_per_second) {
  std::vector<std::shared_ptr<IngestStream>> streams;
  {
    absl::MutexLock lock(&mu_);
    if (bytes_per_second == bytes_per_second_) return;
    bytes_per_second_ = bytes_per_second;
    streams.assign(streams_.begin(), streams_.end());
  }
  for (const auto& stream : streams) stream->Slow(bytes_per_second);
  metrics_->Set(Metric::kThrottleBytesPerSecond, static_cast<double>(bytes_per_second));
  metrics_->Add(Metric::kThrottles, static_cast<double>(streams.size()));
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
