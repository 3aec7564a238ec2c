#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "msprobe/v1/ingest.grpc.pb.h"
#include "server/ingest/scripted/scripted_load.h"

namespace msprobe::server {

// For tests: one rank that streams a ScriptedLoad to a server over gRPC, from where the server stands, and remembers
// what it was promised.
// Threads: Run on one; acknowledged and Cancel from any; the rest when Run is over.
class StreamingRank {
 public:
  StreamingRank(const std::string& run, uint32_t rank, uint64_t seed)
      // Most chunks are long enough for a segment (StoreOptions::segment_chunk_bytes).
      : load_(run, rank, seed, 5, {.different = 100'000, .unit_bytes = 20'000}) {}

  // Before the thread of a Run begins: what was cancelled before was another.
  void Prepare() {
    absl::MutexLock lock(&mu_);
    cancelled_ = false;
  }
  // Until the stream breaks or `most` batches are sent and acknowledged as durable.
  void Run(const std::string& address, uint64_t most) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a new connection, without an earlier one's backoff
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 50);
    auto stub = v1::Ingest::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    {
      absl::MutexLock lock(&mu_);
      wanted_.clear();
      over_ = welcomed_ = false;
      context_ = &context;
      if (cancelled_) context.TryCancel();
    }
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto stream = stub->Stream(&context);
    v1::AgentMessage hello;
    load_.hello().set_freed_through(durable_);
    *hello.mutable_hello() = load_.hello();
    bool open = stream->Write(hello);
    std::thread reader([&] { Read(*stream); });
    uint64_t sequence = 0, last = 0;
    {
      absl::MutexLock lock(&mu_);
      auto ready = [this] { return welcomed_ || over_; };
      mu_.Await(absl::Condition(&ready));
      sequence = last = durable_;
    }
    last += most;
    while (open) {
      std::string hash;
      {
        absl::MutexLock lock(&mu_);
        // A window, as the agent's memory is one.
        auto ready = [&] {
          return over_ || !wanted_.empty() || (sequence < last && sequence < durable_ + kWindow) || durable_ >= last;
        };
        mu_.Await(absl::Condition(&ready));
        if (over_ || (durable_ >= last && wanted_.empty())) break;
        if (!wanted_.empty()) {
          hash = wanted_.front();
          wanted_.pop_front();
        }
      }
      v1::AgentMessage message;
      if (hash.empty()) {
        *message.mutable_batch() = load_.Batch(++sequence);
      } else {
        *message.mutable_payload_chunk() = ScriptedAgent::Chunk(hash, 0, load_.Content(hash), true);
      }
      open = stream->Write(message);
    }
    stream->WritesDone();
    reader.join();
    status_ = stream->Finish();
    absl::MutexLock lock(&mu_);
    context_ = nullptr;
  }

  // The server is gone for good: a Run under way, or about to begin, ends.
  void Cancel() {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }

  uint64_t acknowledged() const {
    absl::MutexLock lock(&mu_);
    return durable_;
  }
  const grpc::Status& status() const { return status_; }
  void ForgetPromises() {
    durable_ = 0;
    stored_.clear();
  }
  std::vector<std::string> Check(const Store& store) { return load_.Check(store, durable_, stored_); }

 private:
  static constexpr uint64_t kWindow = 60;

  void Read(grpc::ClientReaderWriter<v1::AgentMessage, v1::ServerMessage>& stream) {
    v1::ServerMessage message;
    while (stream.Read(&message)) {
      absl::MutexLock lock(&mu_);
      if (message.has_welcome()) {
        durable_ = std::max<uint64_t>(durable_, message.welcome().durable_through());
        load_.Batch(durable_ + kWindow);  // so that it knows the content of what is missing
        for (const std::string& hash : message.welcome().missing_payloads()) wanted_.push_back(hash);
        welcomed_ = true;
      }
      if (message.has_ack()) durable_ = std::max<uint64_t>(durable_, message.ack().durable_through());
      for (const std::string& hash : message.payload_verdict().wanted()) wanted_.push_back(hash);
      stored_.insert(message.payload_verdict().stored().begin(), message.payload_verdict().stored().end());
    }
    absl::MutexLock lock(&mu_);
    over_ = true;
  }

  ScriptedLoad load_;
  mutable absl::Mutex mu_;
  std::deque<std::string> wanted_;
  std::set<std::string> stored_;
  uint64_t durable_ = 0;
  bool welcomed_ = false, over_ = false, cancelled_ = false;
  grpc::ClientContext* context_ = nullptr;
  grpc::Status status_;
};

}  // namespace msprobe::server
