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
#include "server/ingest/session/sessions.h"
#include "server/ingest/stream/task_threads.h"

namespace msprobe::server {

class IngestStream;

struct IngestOptions {
  // The most streams that are open at once, of all callers and of one Caller::peer. One more is refused with
  // RESOURCE_EXHAUSTED. 0: no limit.
  size_t max_streams = 8192;
  size_t max_streams_of_a_peer = 0;
  // Returns the address of the server that a caller's session belongs to; "": this one. Without a function it is always
  // this one.
  std::function<absl::StatusOr<std::string>(const v1::Hello&, const Caller&)> server_of;
};

// msprobe.v1.Ingest over sessions. A stream reads its next message only when the last one is applied, so that it holds
// one message, and gRPC's flow control stops an agent that sends faster. This service has threads of its own that
// decode and apply messages. The threads of gRPC, which also carry questions, only carry bytes, and never wait for the
// store.
//
// Threads: every method from any thread, but for OnReport.
class IngestService final : public v1::Ingest::WithRawCallbackMethod_Stream<v1::Ingest::Service> {
 public:
  // All are borrowed.
  IngestService(Sessions* sessions, Database* database, Metrics* metrics, IngestOptions options = {});
  ~IngestService() override;

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(grpc::CallbackServerContext* context) override;

  // `reported` hears what processes answer to commands (SessionListener::OnControl), on any thread. Call before
  // serving.
  using Reported = std::function<void(const std::string& session, const v1::ControlReport& report)>;
  void OnReport(Reported reported) { reported_ = std::move(reported); }
  size_t streams() const;
  // From now until the next call no stream may send faster than this. 0: no limit.
  void Slow(uint64_t bytes_per_second);

  // Every stream acknowledges what it applied and ends with UNAVAILABLE. Waits until all are gone.
  // False: some were still there after the timeout.
  bool EndStreams(absl::Duration timeout);

 private:
  friend class IngestStream;
  void Remove(const std::shared_ptr<IngestStream>& stream);
  void Report(const std::string& session, const v1::ControlReport& report) const {
    if (reported_) reported_(session, report);
  }
  // Why one more stream is refused; "": it is welcome.
  std::string Refusal(const std::string& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t bytes_per_second() const;

  const IngestOptions options_;
  Sessions* const sessions_;
  Database* const database_;
  Metrics* const metrics_;
  RefusalLog refusals_;
  Reported reported_;
  mutable absl::Mutex mu_;
  std::set<std::shared_ptr<IngestStream>> streams_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, size_t> peers_ ABSL_GUARDED_BY(mu_);  // open streams of each
  uint64_t bytes_per_second_ ABSL_GUARDED_BY(mu_) = 0;
  // Writes answers and finishes calls. Its priority is normal, because a call into gRPC holds locks: were the thread to
  // wait for a processor meanwhile, all of gRPC would wait for it, and so would every question.
  TaskThreads tell_;
  // Applies messages, at a low priority. Its tasks wait for the log, for room in memory, and for processor time behind
  // the batches of all other agents. Destroyed first, since its tasks use the other members.
  TaskThreads apply_;
};

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace msprobe::server
