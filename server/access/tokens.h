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

// The bearer tokens of a file, a line each: roles, a name for the log, the token.
//
//   read          dashboard   9f1c...
//   write,read    trainers    77ab...
//
// Empty lines and those that begin with # are left out. Read again when the file changes (looked at once a second at
// most); a file that has become wrong is logged and what was before stays in force. One that every user of the machine
// can read or write is logged, too.
// Threads: any.
class Tokens {
 public:
  struct Bearer {
    std::string name;
    std::vector<Role> roles;
    bool Has(Role role) const;
  };

  // InvalidArgument names the file, the line and what it should be. `now` is called on every Find.
  static absl::StatusOr<std::unique_ptr<Tokens>> Load(std::string path, std::function<absl::Time()> now = absl::Now);

  // NotFound: nobody's. Takes the same time wherever the token differs from one that is known.
  absl::StatusOr<Bearer> Find(std::string_view token);

 private:
  struct Line {
    std::string token;
    Bearer bearer;
  };
  struct Stamp {
    int64_t seconds = 0, nanoseconds = 0, size = 0;  // of the last change, of its mode too
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

// Looks at every byte of both, however early they differ.
bool SameSecret(std::string_view one, std::string_view other);

}  // namespace msprobe::server
