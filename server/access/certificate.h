#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace msprobe::server {

// When the certificates of a PEM file are valid.
struct Validity {
  absl::Time from = absl::InfinitePast();
  absl::Time until = absl::InfiniteFuture();
};

// Of a chain, which is valid while all of it is. InvalidArgument: the file cannot be read or holds no certificate.
absl::StatusOr<Validity> ChainValidity(const std::string& path);
// Of authorities, of which one will do: from the first to the last moment that any is valid. Errors as above.
absl::StatusOr<Validity> AuthoritiesValidity(const std::string& path);

// InvalidArgument: they are not a certificate chain and its private key. Names both flags and files.
absl::Status CheckKeyPair(const std::string& cert, const std::string& key);

}  // namespace msprobe::server
