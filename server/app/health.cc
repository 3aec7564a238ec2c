#include "server/app/health.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "absl/time/clock.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// The bytes of HealthCheckResponse{status: SERVING}: field 1 as a varint.
constexpr std::string_view kServing("\x08\x01", 2);

}  // namespace

absl::Status AskHealth(const std::string& address, absl::Duration timeout) {
  auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  context.set_wait_for_ready(true);
  grpc::CompletionQueue queue;
  const grpc::Slice empty;  // HealthCheckRequest for the whole server
  grpc::ByteBuffer request(&empty, 1), response;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&response, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  std::string content;
  if (ok && status.ok()) {
    std::vector<grpc::Slice> slices;
    if (!response.Dump(&slices).ok()) return absl::UnavailableError(Cat(address, ": no answer"));
    for (const grpc::Slice& slice : slices) {
      content.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }
  queue.Shutdown();
  if (!status.ok()) return absl::UnavailableError(Cat(address, ": ", status.error_message()));
  if (content != kServing) return absl::UnavailableError(Cat(address, " is not serving: it starts or drains"));
  return absl::OkStatus();
}

}  // namespace msprobe::server
