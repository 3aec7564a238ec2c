#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "agent/core/doorbell.h"
#include "agent/core/transport/stream/connector.h"
#include "agent/core/transport/stream/ingest_stream.h"
#include "agent/core/transport/stream/throttle.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// The abilities of a server, as its Welcome says.
struct ServerOffers {
  size_t chunk_bytes = 0;  // of content in one chunk, at most
  bool chunks = false;     // several chunks in one message
  bool memory = false;     // chunks that name a place in the session's memory
  bool digests = false;    // Block.digest
  bool edges = false;      // Block.edge and its like
  bool scalars = false;    // Item.scalars
  bool responses = false;  // tokens of replies among them
  bool exports = false;    // writes the files of steps that end, and reports them
};

// A session's connection to its server: one stream at a time, and another one after its end.
//
//   kClosed -> kOpen         Open: it was time, and there was an address
//   kOpen -> kGreeted        Greet: the Hello is on its way
//   kGreeted -> kWelcomed    Welcomed: the server takes batches and payloads from now on
//   any state -> kClosed     End, after Tend has seen the stream's end or no Welcome in time; or Close
//
// Everything said on a stream is forgotten with it. A stream that was cancelled is kept until it has ended, as
// IngestStream asks.
//
// Threads: one.
class Connection {
 public:
  using Clock = Doorbell::Clock;
  enum class State : uint8_t { kClosed, kOpen, kGreeted, kWelcomed };

  Connection(Connector connector, std::shared_ptr<Doorbell> bell);

  State state() const { return state_; }
  bool welcomed() const { return state_ == State::kWelcomed; }
  const ServerOffers& offers() const { return stream_.offers; }

  // In kClosed: starts a stream. Where none can be started yet it gives the time of the next attempt.
  Clock::time_point Open(Clock::time_point now);
  // In kOpen.
  void Greet(const v1::Hello& hello);

  // Hands over the messages that have come. Gives how the stream ended, where it has, or where no Welcome came in time;
  // then End has to follow.
  std::optional<grpc::Status> Tend(Clock::time_point now, absl::FunctionRef<void(const v1::ServerMessage&)> handle);
  void End(Clock::time_point now, const grpc::Status& status);

  // These three came from the server: its Welcome, another address, and a bound on bytes.
  void Welcomed(const v1::Welcome& welcome);
  void Redirected(const std::string& address) { stream_.redirect = address; }
  void Throttled(uint64_t bytes_per_second) { stream_.throttle.SetRate(bytes_per_second); }

  // Whether Send takes a message, and whether batches and payloads may go out at `now`.
  bool writable() const { return stream_.call != nullptr && stream_.call->writable(); }
  bool MaySendContent(Clock::time_point now) const {
    return welcomed() && writable() && now >= stream_.throttle.until();
  }
  // `content`: how many bytes of the message count for the throttle. False: one is on its way, or the stream has ended.
  bool Send(const grpc::ByteBuffer& message, size_t content = 0);

  // When something is due though nothing comes: the end of waiting for a Welcome, or of a throttle's pause.
  Clock::time_point NextDue(Clock::time_point now) const;

  // Ends the stream in order, if there is one, waiting for its end until `deadline`. A stream that does not end soon
  // after is left alone rather than waited for.
  void Close(Clock::time_point deadline);

  // The server of the last stream, and why the last attempt failed (empty: it did not).
  const std::string& target() const { return connector_.target(); }
  const std::string& trouble() const { return connector_.trouble(); }
  // As Connector has it.
  std::string client_option() const { return connector_.client_option(); }

 private:
  // One stream, and what was said on it.
  struct Stream {
    std::unique_ptr<IngestStream> call;  // null: none
    Clock::time_point welcome_deadline;
    bool shares_memory = false;  // the Hello named the session's memory
    ServerOffers offers;
    std::string redirect;  // where the server says that the session belongs; empty: here
    Throttle throttle;
  };

  void Forget();

  const std::shared_ptr<Doorbell> bell_;
  Connector connector_;
  State state_ = State::kClosed;
  Stream stream_;
  std::vector<std::unique_ptr<IngestStream>> retired_;  // cancelled, not ended yet
};

}  // namespace msprobe::core
