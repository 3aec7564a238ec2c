#include "agent/core/transport/stream/connection.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace msprobe::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kWelcomeTimeout(10);
constexpr size_t kMostChunkBytes = size_t{1} << 20;

bool Has(const v1::Welcome& welcome, std::string_view capability) {
  return std::find(welcome.capabilities().begin(), welcome.capabilities().end(), capability) !=
         welcome.capabilities().end();
}

}  // namespace

Connection::Connection(Connector connector, std::shared_ptr<Doorbell> bell)
    : bell_(std::move(bell)), connector_(std::move(connector)) {}

Connection::Clock::time_point Connection::Open(Clock::time_point now) {
  stream_.call = connector_.TryStart(now);
  if (stream_.call == nullptr) return std::max(connector_.next_attempt(), now + milliseconds(1));
  stream_.welcome_deadline = now + kWelcomeTimeout;
  state_ = State::kOpen;
  return Clock::time_point::max();
}

void Connection::Greet(const v1::Hello& hello) {
  v1::AgentMessage message;
  *message.mutable_hello() = hello;
  if (!stream_.call->Write(OwnedMessage(message.SerializeAsString()))) return;
  stream_.shares_memory = !hello.shared_file().empty();
  state_ = State::kGreeted;
}

std::optional<grpc::Status> Connection::Tend(Clock::time_point now,
                                             absl::FunctionRef<void(const v1::ServerMessage&)> handle) {
  std::erase_if(retired_, [](const auto& call) { return call->ended().has_value(); });
  if (stream_.call == nullptr) return std::nullopt;
  for (const v1::ServerMessage& message : stream_.call->TakeMessages()) handle(message);
  std::optional<grpc::Status> status = stream_.call->ended();
  if (status.has_value()) {
    // Messages may have come between the two looks.
    for (const v1::ServerMessage& message : stream_.call->TakeMessages()) handle(message);
  } else if (!welcomed() && now >= stream_.welcome_deadline) {
    stream_.call->Cancel();
    status = grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no answer within 10 s");
  }
  return status;
}

void Connection::End(Clock::time_point now, const grpc::Status& status) {
  if (!stream_.redirect.empty()) {
    connector_.Redirected(now, stream_.redirect);
  } else {
    connector_.Failed(now, status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it ended the stream") : status);
  }
  Forget();
}

void Connection::Welcomed(const v1::Welcome& welcome) {
  state_ = State::kWelcomed;
  connector_.Succeeded(welcome.server_version());
  ServerOffers& offers = stream_.offers;
  offers.chunk_bytes =
      welcome.max_chunk_bytes() == 0 ? kMostChunkBytes : std::min<size_t>(kMostChunkBytes, welcome.max_chunk_bytes());
  offers.chunks = Has(welcome, "payload_chunks");
  offers.memory = offers.chunks && stream_.shares_memory && Has(welcome, "shared_memory");
  offers.digests = Has(welcome, "digests");
  offers.edges = Has(welcome, "edges");
  offers.scalars = Has(welcome, "scalars");
  offers.responses = Has(welcome, "responses");
  offers.exports = Has(welcome, "export");
}

bool Connection::Send(const grpc::ByteBuffer& message, size_t content) {
  if (stream_.call == nullptr || !stream_.call->Write(message)) return false;
  stream_.throttle.Sent(content, Clock::now());
  return true;
}

Connection::Clock::time_point Connection::NextDue(Clock::time_point now) const {
  if (state_ == State::kClosed) return Clock::time_point::max();
  if (!welcomed()) return stream_.welcome_deadline;
  return stream_.throttle.until() > now ? stream_.throttle.until() : Clock::time_point::max();
}

void Connection::Close(Clock::time_point deadline) {
  if (stream_.call != nullptr) {
    stream_.call->FinishWriting();
    while (!stream_.call->ended().has_value() && Clock::now() < deadline) bell_->WaitUntil(deadline);
    stream_.call->Cancel();
    Forget();
  }
  // A cancelled call ends at once.
  const Clock::time_point last = deadline + milliseconds(500);
  for (std::unique_ptr<IngestStream>& call : retired_) {
    while (!call->ended().has_value() && Clock::now() < last) bell_->WaitUntil(last);
    if (!call->ended().has_value()) [[maybe_unused]]
      IngestStream* const left_alone = call.release();
  }
  retired_.clear();
}

void Connection::Forget() {
  if (!stream_.call->ended().has_value()) retired_.push_back(std::move(stream_.call));
  stream_ = Stream();
  state_ = State::kClosed;
}

}  // namespace msprobe::core
