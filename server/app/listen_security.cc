#include "server/app/listen_security.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

absl::Status CheckReachable(std::string_view flag, std::string_view safe, const SecurityOptions& options,
                            const ListenAddress& address) {
  if (address.loopback || !options.tls_cert.empty()) return absl::OkStatus();
  if (!options.insecure) {
    return BadFlag(
        flag, address.address,
        Cat(" is reachable from other machines without encryption; give --tls_cert and --tls_key, listen on ", safe,
            ", or add --insecure if the network is trusted"));
  }
  if (!options.tokens.empty()) {
    return BadFlag(
        flag, address.address,
        " would carry the tokens of --tokens over the network readable by all; give --tls_cert and --tls_key");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BadFlag(std::string_view flag, std::string_view value, std::string_view why) {
  return absl::InvalidArgumentError(Cat("--", flag, "=", value, why));
}

absl::Status CheckSecurity(const SecurityOptions& options, const std::vector<ListenAddress>& addresses,
                           const std::string& metrics, const std::string& web) {
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return absl::InvalidArgumentError("--tls_cert and --tls_key go together: give both or neither");
  }
  if (options.tls_cert.empty() && !options.tls_client_ca.empty()) {
    return BadFlag("tls_client_ca", options.tls_client_ca, " needs --tls_cert and --tls_key");
  }
  for (const ListenAddress& address : addresses) {
    if (absl::Status status = CheckReachable("listen", "127.0.0.1 or unix:/path", options, address); !status.ok())
      return status;
  }
  if (!web.empty()) {
    auto page = ParseListenTcp("web_listen", web);
    if (!page.ok()) return page.status();
    if (absl::Status status = CheckReachable("web_listen", "127.0.0.1", options, *page); !status.ok()) return status;
  }
  if (!metrics.empty()) {
    auto scraped = ParseListenTcp("metrics_listen", metrics);
    if (!scraped.ok()) return scraped.status();
    if (!scraped->loopback && !options.insecure && !options.metrics_open) {
      return BadFlag(
          "metrics_listen", metrics,
          " is reachable from other machines, and metrics have neither encryption nor tokens; listen on 127.0.0.1, "
          "or add --metrics_open if the network is trusted");
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const SecurityOptions& options, const ListenAddress& address) {
  // Plain bytes, but in contrast to insecure credentials these let an AuthMetadataProcessor see each call.
  // CheckSecurity has made sure that the address is local.
  if (!address.unix_path.empty()) return grpc::experimental::LocalServerCredentials(UDS);
  if (options.tls_cert.empty()) {
    return options.tokens.empty() ? grpc::InsecureServerCredentials()
                                  : grpc::experimental::LocalServerCredentials(LOCAL_TCP);
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
