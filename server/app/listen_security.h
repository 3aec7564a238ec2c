#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/listen_address.h"

namespace msprobe::server {

// Who may reach the server, and how. All files are PEM.
struct SecurityOptions {
  std::string tls_cert;  // certificate chain; with tls_key, TCP is encrypted
  std::string tls_key;
  std::string tls_client_ca;    // clients must show a certificate that one of these authorities signed
  int tls_reload_seconds = 60;  // how often the three files are read again, for new connections
  std::string tokens;           // see Tokens; empty: no token is needed
  bool insecure = false;        // allows plain TCP, and metrics, on addresses that other machines can reach
  bool metrics_open = false;    // allows metrics on an address that other machines can reach
  int socket_mode = 0600;       // permissions of unix sockets
};

// InvalidArgument: "--flag=value" and why it cannot be.
absl::Status BadFlag(std::string_view flag, std::string_view value, std::string_view why);

// InvalidArgument names the flags that contradict each other, or an address that strangers could reach. `metrics` and
// `web`: addresses of the metrics port and of the web page; empty: none. CheckCertificates reads the files.
absl::Status CheckSecurity(const SecurityOptions& options, const std::vector<ListenAddress>& addresses,
                           const std::string& metrics, const std::string& web);

// TLS for TCP if there is a certificate, else plain. All of them accept an AuthMetadataProcessor if there are tokens or
// the address is a unix socket.
std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const SecurityOptions& options, const ListenAddress& address);

}  // namespace msprobe::server
