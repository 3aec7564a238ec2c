#include "server/app/grpc_port.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <sys/types.h>

#include <utility>

#include "absl/time/clock.h"
#include "server/access/listen_address.h"
#include "server/app/authorizer.h"
#include "server/app/listen_security.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// Room for a batch of max_batch_bytes and its framing.
constexpr int kMaxMessageBytes = 16 << 20;
// Further calls wait at the client.
constexpr int kMaxCallsOfAConnection = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcPort>> GrpcPort::Start(const ServerOptions& options, Tokens* tokens,
                                                          Metrics* metrics, RefusalLog* refusals,
                                                          GrpcServices* services) {
  auto listen = ParseListen(options.listen);
  if (!listen.ok()) return listen.status();
  std::unique_ptr<GrpcPort> port(new GrpcPort);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  // When the quota is used up, streams are read more slowly, which slows their senders down.
  grpc::ResourceQuota messages("messages");
  messages.Resize(options.message_bytes());
  builder.SetResourceQuota(messages);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsOfAConnection);
  // Two servers on one port would share its connections and nobody would notice.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  std::vector<int> ports(listen->size(), 0);
  for (size_t i = 0; i < listen->size(); ++i) {
    const ListenAddress& address = (*listen)[i];
    const auto credentials = [&](std::shared_ptr<const SocketUser> user) {
      std::shared_ptr<grpc::ServerCredentials> made = CredentialsOf(options.security, address);
      if (tokens != nullptr || user != nullptr) {
        made->SetAuthMetadataProcessor(std::make_shared<Authorizer>(tokens, metrics, refusals, std::move(user)));
      }
      return made;
    };
    if (address.unix_path.empty()) {
      builder.AddListeningPort(address.address, credentials(nullptr), &ports[i]);
      continue;
    }
    auto listener =
        UnixListener::Bind(address.unix_path, static_cast<mode_t>(options.security.socket_mode), builder, credentials);
    if (!listener.ok()) return listener.status();
    port->unix_listeners_.push_back(*std::move(listener));
  }
  services->Register(builder);
  port->grpc_ = builder.BuildAndStart();
  if (port->grpc_ == nullptr) {
    return absl::UnavailableError(
        Cat("--listen=", options.listen, ": cannot listen there; the address is in use or not of this machine"));
  }
  for (const auto& listener : port->unix_listeners_) listener->Serve();
  for (size_t i = 0; i < listen->size(); ++i) {
    const ListenAddress& bound = (*listen)[i];
    const std::string& address = bound.address;
    port->addresses_.push_back(bound.unix_path.empty() ? Cat(address.substr(0, address.rfind(':')), ":", ports[i])
                                                       : address);
  }
  return port;
}

void GrpcPort::StopServing() {
  if (auto* health = grpc_->GetHealthCheckService(); health != nullptr) health->SetServingStatus(false);
}

void GrpcPort::Shutdown(absl::Duration patience) {
  grpc_->Shutdown(absl::ToChronoTime(absl::Now() + patience));
  grpc_->Wait();
  unix_listeners_.clear();
}

}  // namespace msprobe::server
