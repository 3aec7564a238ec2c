#include "agent/core/transport/stream/ingest_stream.h"

#include <grpc/grpc.h>

#include <mutex>
#include <string_view>
#include <utility>

#include "agent/core/background_thread.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace msprobe::core {
namespace {

constexpr char kMethod[] = "/msprobe.v1.Ingest/Stream";

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  // Never given back: the last shutdown of gRPC 1.51 can wait 10 s for a poller that has nothing left to poll.
  static std::once_flag held;
  std::call_once(held, grpc_init);
  grpc::ChannelArguments arguments;
  // A channel is one attempt: the sender has its own backoff, which a shared connection's would sit on top of.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Servers end a connection that pings more than once in five minutes without traffic. The timeout is also
  // TCP_USER_TIMEOUT, which notices a dead network while something is being sent.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 310'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

template <typename Owner>
grpc::Slice BorrowedSlice(std::string_view bytes, Owner owner) {
  return grpc::Slice(
      const_cast<char*>(bytes.data()), bytes.size(), [](void* held) { delete static_cast<Owner*>(held); },
      new Owner(std::move(owner)));
}

}  // namespace

std::unique_ptr<IngestStream> IngestStream::Start(const std::string& target, const ServerAccess::Opened& access,
                                                  std::shared_ptr<Doorbell> bell) {
  std::unique_ptr<IngestStream> stream(new IngestStream(target, access, std::move(bell)));
  stream->stub_.PrepareBidiStreamingCall(&stream->context_, kMethod, grpc::StubOptions(), stream.get());
  stream->AddHold();  // for writes, which start outside the reactor's callbacks
  stream->StartRead(&stream->incoming_);
  stream->StartCall();
  return stream;
}

IngestStream::IngestStream(const std::string& target, const ServerAccess::Opened& access,
                           std::shared_ptr<Doorbell> bell)
    : bell_(std::move(bell)), stub_(MakeChannel(target, access.credentials)) {
  if (!access.token.empty()) context_.AddMetadata("authorization", "Bearer " + access.token);
}

bool IngestStream::Write(const grpc::ByteBuffer& message) {
  MutexLock lock(&mu_);
  if (state_ != State::kOpen || writing_) return false;
  writing_ = true;
  outgoing_ = message;
  StartWrite(&outgoing_);
  return true;
}

bool IngestStream::writable() const {
  MutexLock lock(&mu_);
  return state_ == State::kOpen && !writing_;
}

std::vector<v1::ServerMessage> IngestStream::TakeMessages() {
  MutexLock lock(&mu_);
  return std::exchange(messages_, {});
}

std::optional<grpc::Status> IngestStream::ended() const {
  MutexLock lock(&mu_);
  return ended_;
}

void IngestStream::FinishWriting() {
  MutexLock lock(&mu_);
  if (state_ != State::kOpen) return;
  state_ = State::kFinishing;
  StartWritesDone();
}

void IngestStream::OnReadDone(bool ok) {
  NoteBackgroundTime();
  {
    MutexLock lock(&mu_);
    if (ok) {
      messages_.push_back(std::move(incoming_));
    } else {
      state_ = State::kOver;
    }
  }
  if (ok) {
    incoming_.Clear();
    StartRead(&incoming_);
  } else {
    RemoveHold();
  }
  bell_->Ring();
}

void IngestStream::OnWriteDone(bool) {
  NoteBackgroundTime();
  {
    MutexLock lock(&mu_);
    writing_ = false;
    outgoing_.Clear();
  }
  bell_->Ring();
}

void IngestStream::OnDone(const grpc::Status& status) {
  // Once it has ended the sender may delete this.
  const std::shared_ptr<Doorbell> bell = bell_;
  {
    MutexLock lock(&mu_);
    state_ = State::kOver;
    ended_ = status;
  }
  bell->Ring();
}

grpc::ByteBuffer OwnedMessage(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  const std::string_view view = *owner;
  return BorrowedMessage(view, std::move(owner));
}

grpc::ByteBuffer BorrowedMessage(std::string_view bytes, std::shared_ptr<const void> owner) {
  const grpc::Slice slice = BorrowedSlice(bytes, std::move(owner));
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer ChunkMessage(const std::string& hash, uint64_t offset, std::string_view content, bool last,
                              std::shared_ptr<const void> owner) {
  using google::protobuf::internal::WireFormatLite;
  constexpr auto kLengthDelimited = WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  v1::PayloadChunk chunk;
  chunk.set_hash(hash);
  chunk.set_offset(offset);
  chunk.set_last(last);
  // The content field is written last by hand, so that its bytes need not be copied into a message.
  const std::string fields = chunk.SerializeAsString();
  const auto content_length = static_cast<uint32_t>(content.size());
  const size_t chunk_length =
      fields.size() + 1 + google::protobuf::io::CodedOutputStream::VarintSize32(content_length) + content.size();
  std::string head;
  {
    google::protobuf::io::StringOutputStream stream(&head);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.WriteTag(WireFormatLite::MakeTag(v1::AgentMessage::kPayloadChunkFieldNumber, kLengthDelimited));
    out.WriteVarint32(static_cast<uint32_t>(chunk_length));
    out.WriteRaw(fields.data(), static_cast<int>(fields.size()));
    out.WriteTag(WireFormatLite::MakeTag(v1::PayloadChunk::kContentFieldNumber, kLengthDelimited));
    out.WriteVarint32(content_length);
  }
  const grpc::Slice slices[] = {grpc::Slice(head), BorrowedSlice(content, std::move(owner))};
  return grpc::ByteBuffer(slices, content.empty() ? 1 : 2);
}

}  // namespace msprobe::core
