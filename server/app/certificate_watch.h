#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/access/certificate.h"
#include "server/app/listen_security.h"
#include "server/metrics/metrics.h"

namespace msprobe::server {

// Says in the metrics and, before it is too late, in the log when the certificates of a server cease to be valid: as
// they are in use, which is as their files were when they last fitted together.
// Threads: one.
class CertificateWatch {
 public:
  // How long before the end a line a day says so.
  static constexpr absl::Duration kWarn = absl::Hours(24 * 14);

  // `shard_ca`: authority of the other servers of a cluster; empty: there are none. Borrows the metrics.
  CertificateWatch(const SecurityOptions& options, std::string shard_ca, Metrics* metrics);

  // Looks at the files, every tls_reload_seconds at most.
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

// What a server refuses to begin with. InvalidArgument: the certificate is nobody's or its key another's, or an
// authority's file holds none, or either has expired.
absl::Status CheckCertificates(const SecurityOptions& options, absl::Time now);

}  // namespace msprobe::server
