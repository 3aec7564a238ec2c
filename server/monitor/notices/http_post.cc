#include "server/monitor/notices/http_post.h"

#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <sstream>

#include "absl/strings/match.h"
#include "server/access/listen_address.h"
#include "server/access/net_stream.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

absl::Status Wrong(std::string_view why) {
  return absl::InvalidArgumentError(Cat(why, "; it should be http://HOST[:PORT][/PATH] or https://..."));
}

using Answer = HttpPoster::Answer;

std::string Why(error_code error) { return error == net::error::timed_out ? "no answer in time" : error.message(); }

// The operations of one Post: each is begun, and then waited for.
class Operations {
 public:
  using Begin = std::function<void(const NetStream::Handler& done)>;

  // context: has work at all times; once it is stopped, every operation ends with operation_aborted.
  Operations(net::io_context& context, absl::Duration timeout)
      : context_(context), deadline_(std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout)) {}

  error_code Run(const Begin& begin) {
    std::optional<error_code> ended;
    begin([&ended](error_code error, size_t) { ended = error; });
    while (!ended.has_value()) {
      if (context_.run_one_until(deadline_) > 0) continue;
      return context_.stopped() ? net::error::operation_aborted : net::error::timed_out;
    }
    return *ended;
  }

  // Unavailable: why `what` failed.
  absl::Status Do(std::string_view what, const Begin& begin) {
    const error_code error = Run(begin);
    if (!error) return absl::OkStatus();
    return absl::UnavailableError(Cat(what, ": ", Why(error)));
  }

 private:
  net::io_context& context_;
  const std::chrono::steady_clock::time_point deadline_;
};

std::string RequestText(const HttpUrl& url, const HttpPoster::Headers& headers, const std::string& body) {
  http::request<http::string_body> request(http::verb::post, url.target, 11);
  request.set(http::field::host, url.Origin().substr(url.tls ? 8 : 7));
  request.set(http::field::content_type, "application/json");
  request.set(http::field::user_agent, "msprobe-server");
  for (const auto& [name, value] : headers) request.set(name, value);
  request.content_length(body.size());
  std::ostringstream text;
  text << request.base() << body;
  return text.str();
}

// Unavailable: there is no complete header. A body that breaks off is empty: what an answer says besides its status is
// for people, and that it cannot be read makes no failure of a success.
absl::StatusOr<Answer> ReadAnswer(Operations& operations, NetStream& stream) {
  std::array<char, 4096> bytes;
  std::string unread;
  error_code error;
  while (true) {
    http::response_parser<http::string_body> parser;
    parser.eager(true);
    parser.body_limit(HttpPoster::kLongestAnswer);
    while (!parser.is_done()) {
      unread.erase(0, unread.empty() ? 0 : parser.put(net::buffer(unread), error));
      if (error == http::error::need_more) error = {};
      // The parser has no limit for what belongs to neither header nor body: extensions of chunks, and trailers.
      if (!error && unread.size() > HttpPoster::kLongestAnswer) error = http::error::buffer_overflow;
      if (error || parser.is_done()) break;
      size_t count = 0;
      error = operations.Run([&](const NetStream::Handler& done) {
        stream.Read(net::buffer(bytes), [&count, done](error_code failed, size_t read) {
          count = read;
          done(failed, read);
        });
      });
      if (parser.got_some() && (error == net::error::eof || error == net::ssl::error::stream_truncated)) {
        parser.put_eof(error);
        break;
      }
      if (error) break;
      unread.append(bytes.data(), count);
    }
    if (!parser.is_header_done()) return absl::UnavailableError(Cat("the answer: ", Why(error)));
    const int status = static_cast<int>(parser.get().result_int());
    const bool is_interim = status / 100 == 1 && status != 101;
    if (!is_interim || error) return Answer{status, error ? std::string() : parser.get().body()};
  }
}

// The name or the address that the certificate of the other side must have.
bool Expect(SSL* connection, const std::string& host) {
  error_code not_an_address;
  net::ip::make_address(host, not_an_address);
  if (!not_an_address) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection), host.c_str()) == 1;
  return SSL_set1_host(connection, host.c_str()) == 1 && SSL_set_tlsext_host_name(connection, host.c_str()) == 1;
}

absl::StatusOr<Answer> Exchange(net::io_context& context, const std::string& ca, absl::Duration timeout,
                                const HttpUrl& url, const std::string& request) {
  Operations operations(context, timeout);
  net::ip::tcp::resolver resolver(context);
  net::ip::tcp::resolver::results_type found;
  absl::Status status = operations.Do(Cat("looking up ", url.host), [&](const NetStream::Handler& done) {
    resolver.async_resolve(url.host, Cat(url.port), [done, &found](error_code failed, const auto& results) {
      found = results;
      done(failed, 0);
    });
  });
  if (!status.ok()) return status;

  std::optional<net::ssl::context> tls;
  if (url.tls) {
    error_code error;
    tls.emplace(net::ssl::context::tls_client);
    if (ca.empty()) {
      tls->set_default_verify_paths(error);
    } else {
      tls->load_verify_file(ca, error);
    }
    if (error) return absl::UnavailableError(Cat("the authorities of ", ca, ": ", error.message()));
    tls->set_verify_mode(net::ssl::verify_peer);
    SSL_CTX_set_min_proto_version(tls->native_handle(), TLS1_2_VERSION);
  }
  NetStream stream(net::ip::tcp::socket(context), tls.has_value() ? &*tls : nullptr);
  status = absl::UnavailableError("connecting: it has no address");
  for (const auto& each : found) {
    error_code ignored;
    stream.socket().close(ignored);
    status = operations.Do("connecting", [&](const NetStream::Handler& done) {
      stream.socket().async_connect(each.endpoint(), [done](error_code failed) { done(failed, 0); });
    });
    if (status.ok()) break;
  }
  if (status.ok() && url.tls) {
    if (!Expect(stream.tls(), url.host)) return absl::UnavailableError("its name cannot be asked for with TLS");
    status = operations.Do(
        "TLS", [&](const NetStream::Handler& done) { stream.Handshake(net::ssl::stream_base::client, done); });
  }
  if (status.ok()) {
    status =
        operations.Do("sending", [&](const NetStream::Handler& done) { stream.Write({net::buffer(request)}, done); });
  }
  if (!status.ok()) return status;
  return ReadAnswer(operations, stream);
}

}  // namespace

absl::StatusOr<HttpUrl> HttpUrl::Parse(std::string_view text) {
  HttpUrl url;
  std::string_view rest = text;
  if (absl::StartsWith(AbslView(text), "https://")) {
    url.tls = true;
    rest.remove_prefix(8);
  } else if (absl::StartsWith(AbslView(text), "http://")) {
    rest.remove_prefix(7);
  } else {
    return Wrong("it has neither http:// nor https://");
  }
  for (const char each : text) {
    if (each <= ' ' || each > '~') return Wrong("it has a space or a character that is not ASCII");
  }
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  const std::string_view authority = rest.substr(0, end);
  rest.remove_prefix(end);
  if (rest.find('#') != std::string_view::npos) return Wrong("it has a fragment (#)");
  if (authority.find('@') != std::string_view::npos) return Wrong("it names a user");
  const auto host = ParseHostPort(authority);
  if (!host.has_value() || host->host.empty()) return Wrong("it names no host");
  url.host = host->host;
  url.port = host->port.value_or(url.tls ? 443 : 80);
  if (url.port < 1 || url.port > 65535) return Wrong("its port is not one of 1 to 65535");
  url.target = Cat(rest.starts_with('/') ? "" : "/", rest);
  return url;
}

std::string HttpUrl::Origin() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  const std::string port_text = port == (tls ? 443 : 80) ? std::string() : Cat(":", port);
  return Cat(tls ? "https://" : "http://", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port_text);
}

absl::StatusOr<Answer> HttpPoster::Post(const HttpUrl& url, const Headers& headers, const std::string& body) {
  net::io_context context;
  const auto work = net::make_work_guard(context);
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return absl::CancelledError("this server stops");
    under_way_ = &context;
  }
  absl::StatusOr<Answer> answer = Exchange(context, ca_, timeout_, url, RequestText(url, headers, body));
  absl::MutexLock lock(&mu_);
  under_way_ = nullptr;
  if (stopped_) return absl::CancelledError("this server stops");
  return answer;
}

void HttpPoster::Stop() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  if (under_way_ != nullptr) under_way_->stop();
}

}  // namespace msprobe::server
