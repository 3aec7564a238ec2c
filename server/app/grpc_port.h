#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/access/refusal_log.h"
#include "server/access/tokens.h"
#include "server/app/grpc_services.h"
#include "server/app/server_options.h"
#include "server/app/unix_listener.h"
#include "server/metrics/metrics.h"

namespace msprobe::server {

// Serves gRPC on the addresses of --listen, with the health and reflection services.
// Threads: one.
class GrpcPort {
 public:
  // Borrows everything but the options. `tokens` null: no token is needed. InvalidArgument: --listen does not parse.
  // Unavailable: the server cannot listen on an address.
  static absl::StatusOr<std::unique_ptr<GrpcPort>> Start(const ServerOptions& options, Tokens* tokens, Metrics* metrics,
                                                         RefusalLog* refusals, GrpcServices* services);

  // The addresses as bound: port 0 is replaced by the port in use.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // Lets health checks fail, so that no new client comes.
  void StopServing();
  // Ends all calls and connections. `patience`: time for answers on their way.
  void Shutdown(absl::Duration patience);

 private:
  GrpcPort() = default;

  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<UnixListener>> unix_listeners_;
  std::unique_ptr<grpc::Server> grpc_;
};

}  // namespace msprobe::server
