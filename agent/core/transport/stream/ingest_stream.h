#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "agent/core/config/server_access.h"
#include "agent/core/doorbell.h"
#include "agent/core/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// One call of Ingest.Stream, over a channel of its own. gRPC's threads put messages into it and ring the bell; the
// sender takes them out.
//
//   kOpen -> kFinishing      FinishWriting: messages still come, but none goes out
//   either -> kOver          a read failed, or the call is done: ended() follows, or is there
//
// It must live until ended(), and must not be destroyed on a gRPC thread: a process's last channel joins the threads
// that serve callbacks when it goes. So the sender owns it, also after Cancel, and destroys it when it has ended.
//
// Threads: any.
class IngestStream : private grpc::ClientBidiReactor<grpc::ByteBuffer, v1::ServerMessage> {
 public:
  static std::unique_ptr<IngestStream> Start(const std::string& target, const ServerAccess::Opened& access,
                                             std::shared_ptr<Doorbell> bell);

  // Begins to write a message; the bell rings when that is done. False: another write is under way, or it is not kOpen.
  bool Write(const grpc::ByteBuffer& message);
  bool writable() const;

  std::vector<v1::ServerMessage> TakeMessages();
  // How the call ended; absent while it goes on.
  std::optional<grpc::Status> ended() const;

  // The server sees the end of the stream. It may still answer.
  void FinishWriting();
  void Cancel() { context_.TryCancel(); }

 private:
  enum class State : uint8_t { kOpen, kFinishing, kOver };

  IngestStream(const std::string& target, const ServerAccess::Opened& access, std::shared_ptr<Doorbell> bell);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  const std::shared_ptr<Doorbell> bell_;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::ServerMessage> stub_;
  grpc::ClientContext context_;
  v1::ServerMessage incoming_;  // of the read under way
  grpc::ByteBuffer outgoing_;   // of the write under way

  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kOpen;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // a write is under way
  std::vector<v1::ServerMessage> messages_ ABSL_GUARDED_BY(mu_);
  std::optional<grpc::Status> ended_ ABSL_GUARDED_BY(mu_);
};

// Writes a message that brings so many bytes of content. False: the stream did not take it.
using WriteContent = absl::FunctionRef<bool(const grpc::ByteBuffer& message, size_t content)>;

// A message of its own bytes.
grpc::ByteBuffer OwnedMessage(std::string bytes);
// A message of bytes that are borrowed from `owner`.
grpc::ByteBuffer BorrowedMessage(std::string_view bytes, std::shared_ptr<const void> owner);
// A PayloadChunk whose content is borrowed from `owner`.
grpc::ByteBuffer ChunkMessage(const std::string& hash, uint64_t offset, std::string_view content, bool last,
                              std::shared_ptr<const void> owner);

}  // namespace msprobe::core
