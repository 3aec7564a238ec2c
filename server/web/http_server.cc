#include "server/web/http_server.h"

#include <httplib.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "server/access/listen_address.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr size_t kLongestBody = 1024;  // of a request: none is expected
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

HttpResponse Plain(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text), nullptr};
}

// What a new connection shows: the files as they are now. A copy of them that is wrong ends that connection alone.
int ShowCertificate(SSL* connection, void* argument) {
  const auto& options = *static_cast<const HttpOptions*>(argument);
  return SSL_use_certificate_chain_file(connection, options.tls_cert.c_str()) == 1 &&
                 SSL_use_PrivateKey_file(connection, options.tls_key.c_str(), SSL_FILETYPE_PEM) == 1 &&
                 SSL_check_private_key(connection) == 1
             ? 1
             : 0;
}

class SecureServer : public httplib::SSLServer {
 public:
  explicit SecureServer(const HttpOptions& options)
      : SSLServer([](SSL_CTX& context) { return SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION) == 1; }),
        options_(options) {
    SSL_CTX_set_cert_cb(ssl_context(), ShowCertificate, &options_);
    if (options_.tls_client_ca.empty()) return;
    readable_ = SSL_CTX_load_verify_locations(ssl_context(), options_.tls_client_ca.c_str(), nullptr) == 1;
    SSL_CTX_set_verify(ssl_context(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  bool readable() const { return is_valid() && readable_; }

 private:
  HttpOptions options_;
  bool readable_ = true;
};

absl::Status CheckCertificate(const HttpOptions& options) {
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  const bool fits = SSL_CTX_use_certificate_chain_file(context, options.tls_cert.c_str()) == 1 &&
                    SSL_CTX_use_PrivateKey_file(context, options.tls_key.c_str(), SSL_FILETYPE_PEM) == 1 &&
                    SSL_CTX_check_private_key(context) == 1;
  SSL_CTX_free(context);
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("--tls_cert=", options.tls_cert, " and --tls_key=", options.tls_key,
                                        " are not a certificate and its private key"));
}

}  // namespace

struct HttpServer::Stopping {
  std::atomic<bool> now = false;
};

namespace {

class SinkStream : public HttpStream {
 public:
  SinkStream(httplib::DataSink& sink, std::atomic<bool>& stopping) : sink_(sink), stopping_(stopping) {}

  bool Write(std::string_view bytes) override {
    if (!gone_ && !sink_.write(bytes.data(), bytes.size())) gone_ = true;
    return !gone();
  }
  bool gone() override {
    if (gone_ || stopping_) return true;
    const int64_t now = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::milliseconds(1);
    int64_t looked = looked_;
    if (now - looked < 100 || !looked_.compare_exchange_strong(looked, now)) return false;
    if (!sink_.is_writable()) gone_ = true;
    return gone_;
  }

 private:
  httplib::DataSink& sink_;
  std::atomic<bool>& stopping_;
  std::atomic<bool> gone_ = false;
  std::atomic<int64_t> looked_ = 0;  // ms
};

}  // namespace

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : address_(options.address),
      handler_(std::move(handler)),
      loopback_(IsLoopback(options.address)),
      stopping_(std::make_shared<Stopping>()) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options, Handler handler) {
  std::unique_ptr<HttpServer> server(new HttpServer(options, std::move(handler)));
  if (absl::Status status = server->Listen(options); !status.ok()) return status;
  return server;
}

absl::Status HttpServer::Listen(const HttpOptions& options) {
  if (options.tls_cert.empty()) {
    server_ = std::make_unique<httplib::Server>();
  } else {
    if (absl::Status status = CheckCertificate(options); !status.ok()) return status;
    auto secure = std::make_unique<SecureServer>(options);
    if (!secure->readable()) {
      return absl::InvalidArgumentError(Cat("--tls_client_ca=", options.tls_client_ca, " holds no certificate"));
    }
    server_ = std::move(secure);
  }
  server_->new_task_queue = [] { return new httplib::ThreadPool(kConnections); };
  server_->set_keep_alive_timeout(kQuietSeconds);
  server_->set_read_timeout(kTransferSeconds);
  server_->set_write_timeout(kTransferSeconds);
  server_->set_payload_max_length(kLongestBody);
  // Two servers on one port would share its connections without anybody noticing.
  server_->set_socket_options([](int socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server_->set_default_headers({{"Content-Security-Policy", kPolicy},
                                {"X-Content-Type-Options", "nosniff"},
                                {"Referrer-Policy", "no-referrer"},
                                {"Cross-Origin-Resource-Policy", "same-origin"},
                                {"Cache-Control", "no-store"}});
  server_->set_exception_handler([](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
    response.status = 500;
    response.set_content("this request failed in the server\n", "text/plain; charset=utf-8");
  });
  server_->set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    Answer(request, response);
    return httplib::Server::HandlerResponse::Handled;
  });

  const size_t colon = address_.rfind(':');
  const std::string name = address_.substr(0, colon);
  const std::string host = name.starts_with('[') ? name.substr(1, name.size() - 2) : name;
  int port = std::stoi(address_.substr(colon + 1));
  const bool bound = port == 0 ? (port = server_->bind_to_any_port(host)) > 0 : server_->bind_to_port(host, port);
  if (!bound) {
    return absl::UnavailableError(
        Cat("--web_listen=", address_, ": cannot listen there; the address is in use or not of this machine"));
  }
  address_ = Cat(name, ":", port);
  thread_ = std::thread([server = server_.get()] { server->listen_after_bind(); });
  // Its stop means nothing before.
  while (!server_->is_running()) std::this_thread::yield();
  return absl::OkStatus();
}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Stop() {
  stopping_->now = true;
  if (!thread_.joinable()) return;
  server_->stop();
  thread_.join();
}

void HttpServer::Answer(const httplib::Request& request, httplib::Response& response) const {
  HttpResponse answer = Respond(request);
  response.status = answer.status;
  if (answer.status == 401) response.set_header("WWW-Authenticate", "Bearer");
  if (answer.status == 405) response.set_header("Allow", "GET, HEAD");
  if (answer.status == 503) response.set_header("Retry-After", "1");
  if (!answer.stream) {
    response.set_content(std::move(answer.body), answer.type);
    return;
  }
  response.set_chunked_content_provider(
      answer.type, [work = std::move(answer.stream), stopping = stopping_](size_t, httplib::DataSink& sink) {
        SinkStream stream(sink, stopping->now);
        work(stream);
        if (stream.gone()) return false;
        sink.done();
        return true;
      });
}

HttpResponse HttpServer::Respond(const httplib::Request& request) const {
  if (request.method != "GET" && request.method != "HEAD") {
    return Plain(405, "this page is for reading: GET and HEAD only\n");
  }
  const std::string host = request.get_header_value("Host");
  // IsLoopback takes host:port.
  if (loopback_ && !IsLoopback(host) && !IsLoopback(Cat(host, ":80"))) {
    return Plain(403, "this server is asked for under a name that is not this machine's; use localhost\n");
  }
  HttpRequest given;
  given.path = request.path;
  for (const auto& [name, value] : request.params) given.query.emplace(name, value);
  const std::string authorization = request.get_header_value("Authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (authorization.starts_with(kBearer)) given.bearer = authorization.substr(kBearer.size());
  return handler_(given);
}

}  // namespace msprobe::server
