#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/core/mutex.h"
#include "grpcpp/server.h"
#include "msprobe/v1/ingest.grpc.pb.h"

namespace msprobe::core {

// An Ingest service in this process. It keeps in memory what it is sent, and notes in violations() where the sender
// breaks the protocol: a gap in the sequence, a missing definition, a payload chunk that nobody asked for.
//
// Threads: any.
class FakeIngest final : public v1::Ingest::Service {
 public:
  struct Behavior {
    int end_stream_after = 0;           // batches and chunks of one stream; 0: never
    bool acknowledge = true;            // false: takes batches but never makes them durable
    bool exports = false;               // capability "export", answered at once
    bool export_waits = false;          // the same, and no step is reported
    bool want_payloads = true;          // false: it says that it has them all
    std::string refuse_structure = {};  // INVALID_ARGUMENT for a batch that defines a structure of this name
    uint64_t bytes_per_second = 0;
    std::string redirect_to = {};  // every stream is sent there
    bool takes_chunks = false;     // capability "payload_chunks"
    bool reads_memory = false;     // capabilities "payload_chunks" and "shared_memory"
    bool misreads_memory = false;  // it finds other bytes there than the agent had
    bool knows_edges = false;      // capability "edges"
    bool knows_scalars = false;    // capability "scalars"
    bool knows_responses = false;  // capability "responses"
    std::string alarm_over = {};   // series of an alarm that is told before each batch is acknowledged; empty: none is
    uint64_t overtaken = 0;        // batches of a former stream that come behind the first one of this stream
  };

  explicit FakeIngest(std::string socket_path) : socket_path_(std::move(socket_path)) {}
  ~FakeIngest() override { Stop(); }

  void Start();
  void Stop();    // what was made durable stays, and the rest is forgotten
  void Forget();  // everything is gone, also what was durable

  std::string address() const { return "unix:" + socket_path_; }
  void Set(const Behavior& behavior);

  // The durable ones, in order.
  std::vector<v1::Batch> batches() const;
  std::map<std::string, std::string> payloads() const;
  std::vector<v1::Hello> hellos() const;
  std::vector<std::string> violations() const;
  int streams() const;
  int clean_ends() const;  // streams that the agent ended
  uint64_t chunks() const;
  uint64_t shared_chunks() const;   // those that lay in the agent's memory
  uint64_t chunk_messages() const;  // that the chunks came in

  grpc::Status Stream(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::ServerMessage, v1::AgentMessage>* stream) override;

 private:
  using Replies = std::vector<v1::ServerMessage>;

  grpc::Status TakeBatch(const v1::Batch& batch, Replies* replies) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reads a chunk's content from the agent's memory, where the chunk names a place there.
  void ReadMemory(v1::PayloadChunk* chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeChunk(const v1::PayloadChunk& chunk, Replies* replies) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckBlock(const v1::Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string socket_path_;
  std::unique_ptr<grpc::Server> server_;

  mutable Mutex mu_;
  Behavior behavior_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::Batch> batches_ ABSL_GUARDED_BY(mu_);
  uint64_t durable_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> definitions_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> payloads_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> partial_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> announced_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::Hello> hellos_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mu_);
  int streams_ ABSL_GUARDED_BY(mu_) = 0;
  int clean_ends_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t chunks_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t shared_chunks_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t chunk_messages_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::core
