#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace msprobe::server {

// The time during which the certificates of a PEM file are valid.
struct Validity {
  absl::Time from = absl::InfinitePast();
  absl::Time until = absl::InfiniteFuture();
};

// A chain is valid while every certificate in it is. InvalidArgument: the file cannot be read or holds no certificate.
absl::StatusOr<Validity> ChainValidity(const std::string& path);
// One valid authority is enough: from the first moment at which any of them is valid to the last. Errors as above.
absl::StatusOr<Validity> AuthoritiesValidity(const std::string& path);

// InvalidArgument: the files are not a certificate chain and its private key. The message names both flags and files.
absl::Status CheckKeyPair(const std::string& cert, const std::string& key);

}  // namespace msprobe::server
