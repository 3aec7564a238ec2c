#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "agent/core/config/server_access.h"
#include "agent/core/doorbell.h"
#include "agent/core/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/async_stream.h"
#include "grpcpp/support/byte_buffer.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// One call of Ingest.Stream, over a channel and with a thread of its own. The thread puts messages into it and rings
// the bell; the sender takes them out. (gRPC's threads for callbacks belong to the process, which has two of them at
// least, and are joined by whoever destroys its last channel.)
//
//   kOpen -> kFinishing      FinishWriting: messages still come, but none goes out
//   either -> kOver          a read failed, or the call could not begin: ended() follows, or is there
//
// Before ended() its destructor cancels the call and waits for the end.
//
// Threads: any.
class IngestStream {
 public:
  // Null: there can be no further thread. The stream's is as nice, and takes as few signals, as the calling one.
  static std::unique_ptr<IngestStream> Start(const std::string& target, const ServerAccess::Opened& access,
                                             std::shared_ptr<Doorbell> bell);
  ~IngestStream();

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
  // Operations of the call, each at most once under way. As tags of the queue they are never null.
  enum Operation : uintptr_t { kStart = 1, kRead, kWrite, kWritesDone, kFinish };
  static void* TagOf(Operation operation) { return reinterpret_cast<void*>(operation); }

  IngestStream(const std::string& target, const ServerAccess::Opened& access, std::shared_ptr<Doorbell> bell);

  // The thread.
  void Serve();
  void Done(Operation operation, bool ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Begins the write or the end of writes that waits for the call's begin, or for the write before it.
  void GoOnWriting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks for the status, once nothing more can be read.
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<Doorbell> bell_;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::ServerMessage> stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, v1::ServerMessage>> call_;
  v1::ServerMessage incoming_;  // of the read under way
  grpc::Status status_;         // of the finish under way

  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kOpen;
  bool began_ ABSL_GUARDED_BY(mu_) = false;
  int under_way_ ABSL_GUARDED_BY(mu_) = 0;     // operations that the queue will give back
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // outgoing_ waits, or is being written
  bool write_begun_ ABSL_GUARDED_BY(mu_) = false;
  bool writes_done_begun_ ABSL_GUARDED_BY(mu_) = false;
  bool finish_begun_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::ServerMessage> messages_ ABSL_GUARDED_BY(mu_);
  std::optional<grpc::Status> ended_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
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
