#include "server/control/listen_security.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <fstream>
#include <iterator>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

absl::Status Bad(std::string_view flag, std::string_view value, std::string_view why) {
  return absl::InvalidArgumentError(Cat("--", flag, "=", value, why));
}

absl::Status CheckPem(std::string_view flag, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::ifstream file(path);
  if (!file) return Bad(flag, path, " cannot be read");
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  if (content.find("-----BEGIN ") == std::string::npos) return Bad(flag, path, " is not a PEM file");
  return absl::OkStatus();
}

absl::Status CheckReachable(std::string_view flag, std::string_view safe, const SecurityOptions& options,
                            const ListenAddress& address) {
  if (address.loopback || !options.tls_cert.empty()) return absl::OkStatus();
  if (!options.insecure) {
    return Bad(flag, address.address,
               Cat(" is reachable from other machines without encryption; give --tls_cert and --tls_key, listen on ",
                   safe, ", or add --insecure if the network is trusted"));
  }
  if (!options.tokens.empty()) {
    return Bad(flag, address.address,
               " would carry the tokens of --tokens over the network readable by all; give --tls_cert and --tls_key");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSecurity(const SecurityOptions& options, const std::vector<ListenAddress>& addresses,
                           const std::string& metrics, const std::string& web) {
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls_cert and --tls_key go together: give both or neither");
  }
  if (options.tls_cert.empty() && !options.tls_client_ca.empty()) {
    return Bad("tls_client_ca", options.tls_client_ca, " needs --tls_cert and --tls_key");
  }
  for (const auto& [flag, path] : {std::pair("tls_cert", options.tls_cert),
                                   {"tls_key", options.tls_key},
                                   {"tls_client_ca", options.tls_client_ca}}) {
    if (absl::Status status = CheckPem(flag, path); !status.ok()) return status;
  }
  for (const ListenAddress& address : addresses) {
    if (absl::Status status = CheckReachable("listen", "127.0.0.1 or unix:/path", options, address); !status.ok())
      return status;
  }
  if (!web.empty()) {
    auto page = ParseListen(web);
    if (!page.ok() || page->size() != 1 || !page->front().unix_path.empty()) {
      return Bad("web_listen", web, " is not one host:port with a port of 0 to 65535");
    }
    absl::Status status = CheckReachable("web_listen", "127.0.0.1", options, page->front());
    if (!status.ok()) return status;
  }
  if (!metrics.empty() && !IsLoopback(metrics) && !options.insecure) {
    return Bad(
        "metrics_listen", metrics,
        " is reachable from other machines, and metrics have neither encryption nor tokens; listen on 127.0.0.1, "
        "or add --insecure if the network is trusted");
  }
  return absl::OkStatus();
}

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const SecurityOptions& options, const ListenAddress& address) {
  if (!address.unix_path.empty() || options.tls_cert.empty()) {
    if (options.tokens.empty()) return grpc::InsecureServerCredentials();
    // Plain bytes, too, but a kind that lets a processor look at each call. Only of this machine, as CheckSecurity saw.
    return grpc::experimental::LocalServerCredentials(address.unix_path.empty() ? LOCAL_TCP : UDS);
  }
  const auto interval = static_cast<unsigned int>(options.tls_reload_seconds);
  const bool mutual = !options.tls_client_ca.empty();
  auto files = mutual ? std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
                            options.tls_key, options.tls_cert, options.tls_client_ca, interval)
                      : std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
                            options.tls_key, options.tls_cert, interval);
  grpc::experimental::TlsServerCredentialsOptions tls(files);
  tls.watch_identity_key_cert_pairs();
  if (mutual) {
    tls.watch_root_certs();
    tls.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  } else {
    tls.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  }
  return grpc::experimental::TlsServerCredentials(tls);
}

}  // namespace msprobe::server
