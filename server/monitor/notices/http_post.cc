#include "server/monitor/notices/http_post.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <functional>
#include <optional>

#include "absl/strings/match.h"
#include "server/access/listen_address.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

absl::Status Wrong(std::string_view why) {
  return absl::InvalidArgumentError(Cat(why, "; it should be http://HOST[:PORT][/PATH] or https://..."));
}

// Runs one operation of the context, which always has work, to its end. operation_aborted: the context was stopped.
error_code Await(net::io_context& context, const std::function<void(std::function<void(error_code)>)>& begin) {
  std::optional<error_code> result;
  begin([&result](error_code error) { result = error; });
  while (!result.has_value()) {
    if (context.run_one() == 0) return net::error::operation_aborted;
  }
  return *result;
}

// What was aborted is told as such by Post, which knows whether the server stops.
absl::Status Failed(std::string_view what, error_code error) {
  return absl::UnavailableError(
      Cat(what, ": ", error == beast::error::timeout ? "no answer in time" : error.message()));
}

using Answer = HttpPoster::Answer;

template <typename Stream>
absl::StatusOr<Answer> Exchange(net::io_context& context, Stream& stream, const HttpUrl& url,
                                const HttpPoster::Headers& headers, const std::string& body) {
  http::request<http::string_body> request(http::verb::post, url.target, 11);
  request.set(http::field::host, url.Origin().substr(url.tls ? 8 : 7));
  request.set(http::field::content_type, "application/json");
  request.set(http::field::user_agent, "msprobe-server");
  for (const auto& [name, value] : headers) request.set(name, value);
  request.body() = body;
  request.prepare_payload();
  error_code error = Await(context, [&](auto done) {
    http::async_write(stream, request, [done](error_code failed, size_t) { done(failed); });
  });
  if (error) return Failed("sending", error);

  beast::flat_buffer buffer(HttpPoster::kLongestAnswer);
  http::response_parser<http::string_body> parser;
  parser.body_limit(HttpPoster::kLongestAnswer);
  error = Await(context, [&](auto done) {
    http::async_read_header(stream, buffer, parser, [done](error_code failed, size_t) { done(failed); });
  });
  if (error) return Failed("the answer", error);
  const int status = static_cast<int>(parser.get().result_int());
  // What it says besides is for people; that it cannot be read makes no failure of a success.
  error = Await(context, [&](auto done) {
    http::async_read(stream, buffer, parser, [done](error_code failed, size_t) { done(failed); });
  });
  return Answer{status, error ? std::string() : parser.get().body()};
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
  const auto post = [&]() -> absl::StatusOr<Answer> {
    net::ip::tcp::resolver resolver(context);
    net::ip::tcp::resolver::results_type found;
    error_code error = Await(context, [&](auto done) {
      resolver.async_resolve(url.host, Cat(url.port), [done, &found](error_code failed, const auto& results) {
        found = results;
        done(failed);
      });
    });
    if (error) return Failed(Cat("looking up ", url.host), error);
    net::ssl::context tls(net::ssl::context::tls_client);
    if (url.tls) {
      if (ca_.empty()) {
        tls.set_default_verify_paths(error);
      } else {
        tls.load_verify_file(ca_, error);
      }
      if (error) return absl::UnavailableError(Cat("the authorities of ", ca_, ": ", error.message()));
      tls.set_verify_mode(net::ssl::verify_peer);
      SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
    }
    net::ssl::stream<beast::tcp_stream> stream(context, tls);
    beast::tcp_stream& plain = stream.next_layer();
    plain.expires_after(absl::ToChronoMilliseconds(timeout_));
    error = Await(context, [&](auto done) {
      plain.async_connect(found, [done](error_code failed, const auto&) { done(failed); });
    });
    if (error) return Failed("connecting", error);
    if (!url.tls) return Exchange(context, plain, url, headers, body);
    stream.set_verify_callback(net::ssl::host_name_verification(url.host));
    net::ip::make_address(url.host, error);
    if (error && SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str()) != 1) {
      return absl::UnavailableError("its name cannot be sent with TLS");
    }
    error = Await(context, [&](auto done) { stream.async_handshake(net::ssl::stream_base::client, done); });
    if (error) return Failed("TLS", error);
    return Exchange(context, stream, url, headers, body);
  };
  absl::StatusOr<Answer> answer = post();
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
