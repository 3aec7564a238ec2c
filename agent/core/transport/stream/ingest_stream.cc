#include "agent/core/transport/stream/ingest_stream.h"

#include <pthread.h>

#include <string_view>
#include <system_error>
#include <utility>

#include "agent/core/background_thread.h"
#include "agent/core/kept_grpc.h"
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
  KeepGrpc();
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
  IngestStream* const self = stream.get();
  try {
    self->thread_ = std::thread([self] { self->Serve(); });
  } catch (const std::system_error&) {
    self->queue_.Shutdown();
    return nullptr;
  }
  pthread_setname_np(self->thread_.native_handle(), "msprobe-stream");
  return stream;
}

IngestStream::IngestStream(const std::string& target, const ServerAccess::Opened& access,
                           std::shared_ptr<Doorbell> bell)
    : bell_(std::move(bell)), stub_(MakeChannel(target, access.credentials)) {
  if (!access.token.empty()) context_.AddMetadata("authorization", "Bearer " + access.token);
  call_ = stub_.PrepareCall(&context_, kMethod, &queue_);
}

IngestStream::~IngestStream() {
  if (!thread_.joinable()) return;
  Cancel();
  thread_.join();
}

bool IngestStream::Write(const grpc::ByteBuffer& message) {
  MutexLock lock(&mu_);
  if (state_ != State::kOpen || writing_) return false;
  writing_ = true;
  outgoing_ = message;
  GoOnWriting();
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
  GoOnWriting();
}

void IngestStream::Serve() {
  {
    MutexLock lock(&mu_);
    ++under_way_;
    call_->StartCall(TagOf(kStart));
  }
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    NoteBackgroundTime();
    {
      MutexLock lock(&mu_);
      --under_way_;
      Done(static_cast<Operation>(reinterpret_cast<uintptr_t>(tag)), ok);
      if (finish_begun_ && under_way_ == 0) {
        ended_ = status_;
        queue_.Shutdown();
      }
    }
    bell_->Ring();
  }
}

void IngestStream::Done(Operation operation, bool ok) {
  switch (operation) {
    case kStart:
      return ok ? Begin() : Finish();
    case kRead:
      if (!ok) return Finish();
      messages_.push_back(std::move(incoming_));
      incoming_.Clear();
      ++under_way_;
      return call_->Read(&incoming_, TagOf(kRead));
    case kWrite:
      writing_ = write_begun_ = false;
      outgoing_.Clear();
      return GoOnWriting();
    case kWritesDone:
    case kFinish:
      return;
  }
}

void IngestStream::Begin() {
  began_ = true;
  ++under_way_;
  call_->Read(&incoming_, TagOf(kRead));
  GoOnWriting();
}

void IngestStream::GoOnWriting() {
  if (!began_ || state_ == State::kOver || write_begun_) return;
  if (writing_) {
    write_begun_ = true;
    ++under_way_;
    call_->Write(outgoing_, TagOf(kWrite));
  } else if (state_ == State::kFinishing && !std::exchange(writes_done_begun_, true)) {
    ++under_way_;
    call_->WritesDone(TagOf(kWritesDone));
  }
}

void IngestStream::Finish() {
  state_ = State::kOver;
  if (!write_begun_) writing_ = false;
  if (std::exchange(finish_begun_, true)) return;
  ++under_way_;
  call_->Finish(&status_, TagOf(kFinish));
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
