#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "msprobe/v1/ingest.grpc.pb.h"
#include "server/access/refusal_log.h"
#include "server/ingest/sessions.h"
#include "server/ingest/task_threads.h"

namespace msprobe::server {

class IngestStream;

struct IngestOptions {
  // One more at once, of all or of one Caller::peer, is refused with RESOURCE_EXHAUSTED. 0: no limit.
  size_t max_streams = 8192;
  size_t max_streams_of_a_peer = 0;
  // The address of the server that a caller's session belongs to; empty: this one. No function: always this one.
  std::function<absl::StatusOr<std::string>(const v1::Hello&, const Caller&)> server_of;
};

// msprobe.v1.Ingest over sessions. One message of a stream is read at a time and the next only when it is applied, so
// that a stream holds one message and gRPC's flow control stops the agent. Messages are decoded and applied by threads
// of this service: those of gRPC, which also carry questions, only carry bytes, and never wait for the store.
class IngestService final : public v1::Ingest::WithRawCallbackMethod_Stream<v1::Ingest::Service> {
 public:
  IngestService(Sessions* sessions, Store* store, Metrics* metrics, IngestOptions options = {});
  ~IngestService() override;

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(grpc::CallbackServerContext* context) override;

  // `report` hears what processes answer to commands (SessionListener::OnControl), from any thread. Before serving.
  using Reported = std::function<void(const std::string& session, const v1::ControlReport& report)>;
  void OnReport(Reported reported) { reported_ = std::move(reported); }
  size_t streams() const;
  // Every stream, of now and later, sends no faster than this until the next call. 0: no limit.
  void Slow(uint64_t bytes_per_second);

  // Every stream acknowledges what it applied and ends with UNAVAILABLE. Waits until all are gone.
  bool EndStreams(absl::Duration timeout);

 private:
  friend class IngestStream;
  void Remove(const std::shared_ptr<IngestStream>& stream);
  void Report(const std::string& session, const v1::ControlReport& report) const {
    if (reported_) reported_(session, report);
  }
  // Empty: the stream is welcome.
  std::string Refusal(const std::string& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t bytes_per_second() const;

  const IngestOptions options_;
  Sessions* const sessions_;
  Store* const store_;
  Metrics* const metrics_;
  RefusalLog refusals_;
  Reported reported_;
  mutable absl::Mutex mu_;
  std::set<std::shared_ptr<IngestStream>> streams_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, size_t> peers_ ABSL_GUARDED_BY(mu_);  // streams of each
  uint64_t bytes_per_second_ ABSL_GUARDED_BY(mu_) = 0;
  // What gRPC is told of streams. Never by a thread of low priority: what that one holds of gRPC while it waits for a
  // processor, all of gRPC waits for, and with it every question.
  TaskThreads tell_;
  // What applies a batch waits for the log, for room in memory, and for processor time behind the batches of all other
  // agents. First to go: its tasks use the rest.
  TaskThreads apply_;
};

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace msprobe::server
