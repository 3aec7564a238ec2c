#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/access/roles.h"

namespace msprobe::server {

// The bearer tokens of a file. Each line has the roles, a name for the log, and the token:
//
//   read          dashboard   9f1c...
//   write,read    trainers    77ab...
//
// Empty lines and lines that begin with # are ignored. When the file changes, it is read again; it is checked at most
// once a second. If the new content is wrong, an error is logged and the former tokens stay valid. A file that every
// user of the machine can read or write causes a warning.
// Threads: any.
class Tokens {
 public:
  struct Bearer {
    std::string name;
    std::vector<Role> roles;
    bool Has(Role role) const;
  };

  // InvalidArgument names the file, the line and what is expected there. Every Find calls `now`.
  static absl::StatusOr<std::unique_ptr<Tokens>> Load(std::string path, std::function<absl::Time()> now = absl::Now);

  // NotFound: no line has this token. The time that it takes does not tell how much of the token was right.
  absl::StatusOr<Bearer> Find(std::string_view token);

 private:
  struct Line {
    std::string token;
    Bearer bearer;
  };
  struct Stamp {
    int64_t seconds = 0, nanoseconds = 0, size = 0;  // time of the last change of content, owner or mode
    uint64_t inode = 0;
    uint32_t mode = 0;
    bool operator==(const Stamp&) const = default;
  };

  Tokens(std::string path, std::function<absl::Time()> now) : path_(std::move(path)), now_(std::move(now)) {}
  static absl::StatusOr<std::vector<Line>> Read(const std::string& path);
  Stamp StampOfFile() const;
  void WarnOfReaders() const;
  void ReloadIfChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  const std::function<absl::Time()> now_;
  absl::Mutex mu_;
  std::vector<Line> lines_ ABSL_GUARDED_BY(mu_);
  Stamp stamp_ ABSL_GUARDED_BY(mu_);
  absl::Time looked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

// Compares two secrets in a time that does not depend on where they differ.
bool SameSecret(std::string_view one, std::string_view other);

}  // namespace msprobe::server
