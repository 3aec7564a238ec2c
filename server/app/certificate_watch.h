#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/access/certificate.h"
#include "server/app/listen_security.h"
#include "server/metrics/metrics.h"

namespace msprobe::server {

// Shows in the metrics when the server's certificates expire, and warns in the log in good time. What counts are the
// certificates in use: the files as they were when certificate and key last matched.
// Threads: one.
class CertificateWatch {
 public:
  // Within this time before the expiry, the log gets one line a day.
  static constexpr absl::Duration kWarn = absl::Hours(24 * 14);

  // `shard_ca`: file of the authority of the cluster's other servers; empty: there are none. Borrows the metrics.
  CertificateWatch(const SecurityOptions& options, std::string shard_ca, Metrics* metrics);

  // Reads the files, at most once every tls_reload_seconds.
  void Tick(absl::Time now);

 private:
  struct File {
    std::string path;
    bool is_authority = false;
    absl::Time warned = absl::InfinitePast();
  };
  void Look(const std::string& flag, File& file, absl::Time now);

  const std::string key_;
  const absl::Duration period_;
  Metrics* const metrics_;
  std::map<std::string, File> files_;  // by flag
  absl::Time next_ = absl::InfinitePast();
};

// The check before a server starts. InvalidArgument: certificate and key do not match, the authorities' file holds no
// certificate, or one of the two has expired.
absl::Status CheckCertificates(const SecurityOptions& options, absl::Time now);

}  // namespace msprobe::server
