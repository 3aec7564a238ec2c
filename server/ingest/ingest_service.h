#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "msprobe/v1/ingest.grpc.pb.h"
#include "server/ingest/sessions.h"

namespace msprobe::server {

class IngestStream;

// msprobe.v1.Ingest over sessions. One message of a stream is read at a time and the next only when it is applied, so
// that a stream holds one message and gRPC's flow control stops the agent.
class IngestService final : public v1::Ingest::CallbackService {
 public:
  // Beyond `most_streams` at once a stream is refused with RESOURCE_EXHAUSTED.
  IngestService(Sessions* sessions, Store* store, Metrics* metrics, size_t most_streams = 8192)
      : sessions_(sessions), store_(store), metrics_(metrics), most_streams_(most_streams) {}
  ~IngestService() override;

  grpc::ServerBidiReactor<v1::AgentMessage, v1::ServerMessage>* Stream(grpc::CallbackServerContext* context) override;

  // `report` hears what processes answer to commands (SessionListener::OnControl), from any thread. Before serving.
  using Reported = std::function<void(const std::string& session, const v1::ControlReport& report)>;
  void OnReport(Reported reported) { reported_ = std::move(reported); }

  // Every stream acknowledges what it applied and ends with UNAVAILABLE. Waits until all are gone.
  bool EndStreams(absl::Duration timeout);

 private:
  friend class IngestStream;
  void Remove(const std::shared_ptr<IngestStream>& stream);
  void Report(const std::string& session, const v1::ControlReport& report) const {
    if (reported_) reported_(session, report);
  }

  Sessions* const sessions_;
  Store* const store_;
  Metrics* const metrics_;
  const size_t most_streams_;
  Reported reported_;
  absl::Mutex mu_;
  std::set<std::shared_ptr<IngestStream>> streams_ ABSL_GUARDED_BY(mu_);
};

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace msprobe::server
