#include "agent/core/kept_grpc.h"

#include <grpc/grpc.h>

#include <memory>
#include <mutex>

#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace msprobe::core {

void KeepGrpc() {
  static std::once_flag kept;
  std::call_once(kept, [] {
    grpc_init();
    // Every channel holds the event engine. Without a call this one connects to nobody. Nothing reads the pointer: were
    // it not volatile, the compiler would not store it, and a leak checker would find the channel lost.
    [[maybe_unused]] static const std::shared_ptr<grpc::Channel>* volatile channel;
    channel =
        new std::shared_ptr<grpc::Channel>(grpc::CreateChannel("ipv4:127.0.0.1:1", grpc::InsecureChannelCredentials()));
  });
}

}  // namespace msprobe::core
