#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace boost::asio {
class io_context;
}

namespace msprobe::server {

// http://host[:port][/path][?query], or the same with https.
struct HttpUrl {
  bool tls = false;
  std::string host;  // without brackets
  int port = 0;
  std::string target = "/";  // path and query, as they stand

  // InvalidArgument says what is wrong and what is allowed. User names and fragments are refused.
  static absl::StatusOr<HttpUrl> Parse(std::string_view text);
  // "https://host:8443": without the path, which may hold a secret.
  std::string Origin() const;
  bool operator==(const HttpUrl&) const = default;
};

// Posts JSON to other programs, by Boost.Asio and the parser of Boost.Beast. TLS verifies the certificate and its name.
// Nothing is followed: a redirect is an answer like any other. Threads: Post from one at a time; Stop from any.
class HttpPoster {
 public:
  // ca: PEM file with the authorities that are trusted, read for each connection; empty: the system's.
  HttpPoster(std::string ca, absl::Duration timeout) : ca_(std::move(ca)), timeout_(timeout) {}

  struct Answer {
    int status = 0;
    std::string body;  // at most kLongestAnswer bytes
  };
  using Headers = std::vector<std::pair<std::string, std::string>>;
  // Unavailable: no answer within the timeout, and why. Cancelled: after Stop.
  absl::StatusOr<Answer> Post(const HttpUrl& url, const Headers& headers, const std::string& body);
  // Ends the Post under way. Later ones fail.
  void Stop();

  static constexpr size_t kLongestAnswer = size_t{64} << 10;

 private:
  const std::string ca_;
  const absl::Duration timeout_;
  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  boost::asio::io_context* under_way_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace msprobe::server
