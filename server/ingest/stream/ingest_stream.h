#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/ingest/payload/payload_intake.h"
#include "server/ingest/stream/answers.h"
#include "server/ingest/stream/ingest_service.h"

namespace msprobe::server {

// One stream of one session, over gRPC. A message is read, then decoded and applied by IngestService::apply_, and only
// then the next one is read. An answer is written whenever there is one and the last write is done.
//
// The states, and what leads from one to another:
//
//   kOpen          messages are read and applied, and answered
//   kEnding        nothing more is read; the call finishes when all is said and what was applied is durable
//   kEndingAtOnce  the same, but without waiting for what is not durable: this stream will not hear of it
//   kCut           the call is broken: nothing more is said; it finishes when nothing is being applied or written
//   kFinished      the call has its status, and nothing of it may be touched any more
//
//   kOpen                   -> kEnding        the agent closed its side, a message was refused, the stream was
//                                             redirected, or the server shuts down
//   kOpen, kEnding          -> kEndingAtOnce  a sync failed, or another stream took the session over
//   any but kFinished       -> kCut           a write failed, or the call was cancelled
//   any but kOpen           -> kFinished      in Advance
//
// The first status that ends the stream is the one that the agent gets. While a message is being applied the call does
// not finish, whatever happens to it.
//
// Lives until gRPC is done with it and nobody else (a listener of its session) is using it.
class IngestStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public SessionListener,
                           public std::enable_shared_from_this<IngestStream> {
 public:
  IngestStream(IngestService* service, Caller caller) : service_(service), caller_(std::move(caller)) {}

  const Caller& caller() const { return caller_; }
  void Begin();
  // Tells the agent to send no faster; 0: as fast as it can. Does nothing before the agent is welcomed.
  void Slow(uint64_t bytes_per_second);
  // Acknowledges what is applied, then ends with the status.
  void End(const grpc::Status& status);

  // By threads of gRPC.
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
  void OnAlarm(const v1::AlarmRaised& alarm) override;
  void OnReplaced(const absl::Status& status) override;

 private:
  enum class State { kOpen, kEnding, kEndingAtOnce, kCut, kFinished };

  // Messages (ingest_messages.cc), all by apply_.
  absl::Status Decode();
  absl::Status Take(const v1::AgentMessage& message);
  absl::Status TakeHello(const v1::Hello& hello);
  absl::Status TakeBatch(Session& session, const v1::Batch& batch);
  absl::Status TakePayloads(Session& session, const v1::AgentMessage& message);
  void Redirect(const std::string& server, const v1::Hello& hello);
  void SayVerdict(v1::PayloadVerdict verdict);

  // Decodes and takes the message that was read, by apply_; then tell_ calls Applied.
  void Apply();
  void Applied(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  void Say(v1::ServerMessage message) ABSL_LOCKS_EXCLUDED(mu_);
  void Acknowledge() ABSL_LOCKS_EXCLUDED(mu_);
  // Has tell_ call Advance.
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes the next answer or finishes the call, where it may. By tell_ or a thread of gRPC.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Write(const v1::ServerMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishWith(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // To kEnding, kEndingAtOnce, kCut.
  void EndLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndAtOnce(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Cut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  IngestService* const service_;
  const Caller caller_;
  grpc::ByteBuffer incoming_;  // touched by whoever reads or applies
  // Touched by whoever applies.
  v1::AgentMessage message_;
  std::string session_id_;
  std::optional<PayloadIntake> payloads_;  // from the hello on

  absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kOpen;
  grpc::Status end_ ABSL_GUARDED_BY(mu_);                  // from kEnding on
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mu_);  // from the hello on
  Answers answers_ ABSL_GUARDED_BY(mu_);
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);
  // The work under way, in any state.
  bool applying_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool pumping_ ABSL_GUARDED_BY(mu_) = false;  // Advance is about to be called
};

}  // namespace msprobe::server
