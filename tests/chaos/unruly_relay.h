#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "msprobe/v1/ingest.grpc.pb.h"

namespace msprobe::server {

// For tests: Ingest in front of another Ingest, that knows messages. It sends batches again, holds messages back, and
// ends streams towards the agent; what it held back then, be it a hello, reaches the server about when the agent's next
// stream begins, or behind that: as happens when two connections overtake one another.
// Threads: gRPC's; every method from any.
class UnrulyRelay final : public v1::Ingest::Service {
 public:
  UnrulyRelay(const std::string& listen, const std::string& forward, uint64_t seed);
  ~UnrulyRelay() override;

  // From now on everything passes as it comes.
  void Calm();
  uint64_t duplicates() const { return duplicates_; }
  uint64_t cuts() const { return cuts_; }
  // Messages that it sent on when the agent's next stream had been welcomed.
  uint64_t overtaken() const { return overtaken_; }

 private:
  using AgentStream = grpc::ServerReaderWriter<v1::ServerMessage, v1::AgentMessage>;
  // A call to the server, which may outlive the agent's.
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::ServerMessage>> server;
    std::thread answers;
    absl::Mutex mu;
    // Null once the agent's call is over.
    AgentStream* agent ABSL_GUARDED_BY(mu) = nullptr;
    grpc::ServerContext* agent_context ABSL_GUARDED_BY(mu) = nullptr;
    std::string session ABSL_GUARDED_BY(mu);
  };

  grpc::Status Stream(grpc::ServerContext* context, AgentStream* agent) override;
  void Answer(Call& call);
  // Until the agent or the server ends (false) or the relay does (true).
  bool Forward(AgentStream& agent, Call& call, std::deque<v1::AgentMessage>& held);
  bool Send(const v1::AgentMessage& message, std::deque<v1::AgentMessage>& recent, Call& call);
  void DeliverLate(Call& call, const std::deque<v1::AgentMessage>& held);
  uint64_t Draw(uint64_t below);
  uint64_t Welcomed(const std::string& session) const;

  std::unique_ptr<v1::Ingest::Stub> server_;
  std::unique_ptr<grpc::Server> listener_;
  std::atomic<bool> calm_{false}, stop_{false};
  std::atomic<uint64_t> duplicates_{0}, cuts_{0}, overtaken_{0};

  mutable absl::Mutex mu_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, uint64_t> welcomed_ ABSL_GUARDED_BY(mu_);  // streams of a session
  std::set<grpc::ServerContext*> open_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> late_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::server
