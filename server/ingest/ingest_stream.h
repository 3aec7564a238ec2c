#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/ingest/agent_memory.h"
#include "server/ingest/ingest_service.h"

namespace msprobe::server {

// One stream of one session. A message is read, then decoded and applied by IngestService::apply_, then the next is
// read; writing happens whenever there is something to say and the last write is done. Acknowledgements not yet written
// are replaced by later ones. While a message is being applied the call is not finished, whatever has happened to it.
//
// Lives until gRPC is done with it and nobody else (a listener of its session) is using it.
class IngestStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public SessionListener,
                           public std::enable_shared_from_this<IngestStream> {
 public:
  IngestStream(IngestService* service, Caller caller) : service_(service), caller_(std::move(caller)) {}

  const Caller& caller() const { return caller_; }
  void Begin();
  // Tells the agent to send no faster; 0: as fast as it can. Nothing where it is not welcomed yet.
  void Slow(uint64_t bytes_per_second);
  // Acknowledges what is applied, then ends with the status.
  void End(const grpc::Status& status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void OnDurable(uint64_t durable_through) override;
  void OnSyncFailed(const absl::Status& status) override;
  void OnStored(const std::vector<std::string>& hashes) override;
  void OnStepExported(const v1::StepExported& exported) override;
  void OnControl(const v1::ControlCommand& command) override;
  void OnDumpRoom(const v1::DumpRoom& room) override;
  void OnReplaced(const absl::Status& status) override;

 private:
  // By apply_; then Applied by tell_.
  void Apply();
  void Applied(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Decode();
  absl::Status Take(const v1::AgentMessage& message);
  absl::Status TakeChunks(Session& session, const v1::AgentMessage& message);
  absl::Status TakeChunk(Session& session, const v1::PayloadChunk& chunk, std::string_view content,
                         v1::PayloadVerdict& verdict);
  // The first of `chunks` that are whole payloads, as many as are as large as one chunk may be; answers how many.
  absl::StatusOr<size_t> TakeWhole(Session& session, std::span<const v1::PayloadChunk* const> chunks,
                                   v1::PayloadVerdict& verdict);
  // The content lies in the agent's memory.
  absl::Status TakeSharedChunk(Session& session, const v1::PayloadChunk& chunk, v1::PayloadVerdict& verdict);
  absl::Status TakeHello(const v1::Hello& hello);
  absl::Status SendTo(const std::string& server, const v1::Hello& hello);
  void Send(v1::ServerMessage message) ABSL_LOCKS_EXCLUDED(mu_);
  void SendVerdict(v1::PayloadVerdict verdict);
  void Acknowledge() ABSL_LOCKS_EXCLUDED(mu_);
  void Write(const v1::ServerMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has tell_ call Advance.
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes or finishes, where there is something to. By tell_ or a thread of gRPC.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Without waiting for what was received to be durable: nobody will say so here.
  void EndAtOnce(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nobody listens any more.
  void Cut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  IngestService* const service_;
  const Caller caller_;
  grpc::ByteBuffer incoming_;  // touched by who reads or applies
  v1::AgentMessage message_;   // touched by who applies
  absl::Mutex mu_;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mu_);
  std::string session_id_;               // as message_, and so are the next two
  std::unique_ptr<AgentMemory> memory_;  // null: payloads come in messages
  uint32_t max_chunk_bytes_ = 0;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::ServerMessage> queue_ ABSL_GUARDED_BY(mu_);
  bool redirected_ ABSL_GUARDED_BY(mu_) = false;  // what is in the queue goes out without a session
  bool acknowledge_ ABSL_GUARDED_BY(mu_) = false;
  bool applying_ ABSL_GUARDED_BY(mu_) = false;
  bool pumping_ ABSL_GUARDED_BY(mu_) = false;  // Advance is about to be called
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool cut_ ABSL_GUARDED_BY(mu_) = false;     // Finish follows when nothing is being applied or written
  bool ending_ ABSL_GUARDED_BY(mu_) = false;  // Finish follows when everything is written and, unless at_once_, durable
  bool at_once_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;  // Finish was called
  grpc::Status end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::server
