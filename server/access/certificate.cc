#include "server/access/certificate.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <vector>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Certificate = std::unique_ptr<X509, Free<X509_free>>;

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromUnixSeconds(timegm(&parts));
}

absl::StatusOr<std::vector<Validity>> Read(const std::string& path) {
  const std::unique_ptr<BIO, Free<BIO_free>> file(BIO_new_file(path.c_str(), "r"));
  std::vector<Validity> found;
  while (file != nullptr) {
    const Certificate certificate(PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) break;
    found.push_back({TimeOf(X509_get0_notBefore(certificate.get())), TimeOf(X509_get0_notAfter(certificate.get()))});
  }
  ERR_clear_error();  // reading up to the end of the file leaves an error
  if (!found.empty()) return found;
  return absl::InvalidArgumentError(Cat(path, file == nullptr ? " cannot be read" : " holds no certificate"));
}

}  // namespace

absl::StatusOr<Validity> ChainValidity(const std::string& path) {
  auto found = Read(path);
  if (!found.ok()) return found.status();
  Validity chain;
  for (const Validity& one : *found) chain = {std::max(chain.from, one.from), std::min(chain.until, one.until)};
  return chain;
}

absl::StatusOr<Validity> AuthoritiesValidity(const std::string& path) {
  auto found = Read(path);
  if (!found.ok()) return found.status();
  Validity any = found->front();
  for (const Validity& one : *found) any = {std::min(any.from, one.from), std::max(any.until, one.until)};
  return any;
}

absl::Status CheckKeyPair(const std::string& cert, const std::string& key) {
  const std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>> context(SSL_CTX_new(TLS_server_method()));
  const bool fits = SSL_CTX_use_certificate_chain_file(context.get(), cert.c_str()) == 1 &&
                    SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) == 1 &&
                    SSL_CTX_check_private_key(context.get()) == 1;
  ERR_clear_error();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("--tls_cert=", cert, " and --tls_key=", key, " are not a certificate and its private key"));
}

}  // namespace msprobe::server
