#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/listen_address.h"

namespace msprobe::server {

// Who may reach the server, and how. All files are PEM.
struct SecurityOptions {
  std::string tls_cert;  // chain; with tls_key: TCP is TLS
  std::string tls_key;
  std::string tls_client_ca;    // clients have to show a certificate that this signed
  int tls_reload_seconds = 60;  // how often the three are looked at; new connections get what they hold then
  std::string tokens;           // see Tokens; empty: no token is asked for
  bool insecure = false;        // plain TCP beyond this machine is wanted, and metrics, too
  bool metrics_open = false;    // metrics beyond this machine are wanted
  int socket_mode = 0600;       // of unix sockets
};

// InvalidArgument names the flags that do not go together, or an address that strangers could reach. `metrics` and
// `web`: addresses of the metrics port and of the web page; empty: none. Files are looked at by CheckCertificates.
absl::Status CheckSecurity(const SecurityOptions& options, const std::vector<ListenAddress>& addresses,
                           const std::string& metrics, const std::string& web);

// TLS for TCP where there is a certificate; else plain. With tokens, and of sockets, a processor can be given to them.
std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const SecurityOptions& options, const ListenAddress& address);

}  // namespace msprobe::server
