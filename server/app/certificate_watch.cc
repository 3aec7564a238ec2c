#include "server/app/certificate_watch.h"

#include <utility>

#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kSayAgain = absl::Hours(24);

std::string Shown(absl::Time time) { return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone()); }

absl::StatusOr<Validity> ValidityOf(const std::string& path, bool is_authority) {
  return is_authority ? AuthoritiesValidity(path) : ChainValidity(path);
}

absl::Status CheckValid(std::string_view flag, const std::string& path, bool is_authority, absl::Time now) {
  const auto validity = ValidityOf(path, is_authority);
  if (!validity.ok()) return absl::InvalidArgumentError(Cat("--", flag, "=", validity.status().message()));
  if (validity->until > now) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("--", flag, "=", path, " has expired at ", Shown(validity->until),
                                        "; nobody who looks would accept it: give one that is valid"));
}

}  // namespace

absl::Status CheckCertificates(const SecurityOptions& options, absl::Time now) {
  if (options.tls_cert.empty()) return absl::OkStatus();
  if (absl::Status status = CheckValid("tls_cert", options.tls_cert, false, now); !status.ok()) return status;
  if (absl::Status status = CheckKeyPair(options.tls_cert, options.tls_key); !status.ok()) return status;
  if (options.tls_client_ca.empty()) return absl::OkStatus();
  return CheckValid("tls_client_ca", options.tls_client_ca, true, now);
}

CertificateWatch::CertificateWatch(const SecurityOptions& options, std::string shard_ca, Metrics* metrics)
    : key_(options.tls_key), period_(absl::Seconds(options.tls_reload_seconds)), metrics_(metrics) {
  if (!options.tls_cert.empty()) files_["tls_cert"] = {options.tls_cert, false};
  if (!options.tls_client_ca.empty()) files_["tls_client_ca"] = {options.tls_client_ca, true};
  if (!shard_ca.empty()) files_["shard_ca"] = {std::move(shard_ca), true};
}

void CertificateWatch::Tick(absl::Time now) {
  if (now < next_) return;
  next_ = now + period_;
  for (auto& [flag, file] : files_) Look(flag, file, now);
}

void CertificateWatch::Look(const std::string& flag, File& file, absl::Time now) {
  auto validity = ValidityOf(file.path, file.is_authority);
  absl::Status status = validity.status();
  if (status.ok() && flag == "tls_cert") status = CheckKeyPair(file.path, key_);
  const bool again = now - file.warned >= kSayAgain;
  if (!status.ok()) {
    // gRPC, too, keeps using the former content.
    if (again) LogError("--{}: {}; what it held before is used on", flag, std::string(status.message()));
    if (again) file.warned = now;
    return;
  }
  metrics_->Set(Metric::kCertificateExpiry, absl::ToDoubleSeconds(validity->until - absl::UnixEpoch()), {flag});
  if (validity->from > now) {
    if (again) LogWarning("--{}={} is not valid before {}", flag, file.path, Shown(validity->from));
  } else if (validity->until <= now) {
    if (again) LogError("--{}={} has expired at {}: who looks refuses it", flag, file.path, Shown(validity->until));
  } else if (validity->until - now < kWarn) {
    if (again) LogWarning("--{}={} expires at {}", flag, file.path, Shown(validity->until));
  } else {
    file.warned = absl::InfinitePast();
    return;
  }
  if (again) file.warned = now;
}

}  // namespace msprobe::server
