#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace msprobe::server {

struct HttpRequest {
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded; if a name occurs twice, the first value
  std::string bearer;                        // token of the header "Authorization: Bearer ..."; empty: none
  std::string peer;                          // the client's address without port; for IPv6 its network (/64)
};

// The body of a response that is written while it is being made.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // Only from the worker that makes the response. Waits until the client has taken enough of what was written before.
  // False: the client is gone.
  virtual bool Write(std::string_view bytes) = 0;
  // The client is gone, its time is over, or the server stops. Any thread; cheap.
  virtual bool gone() = 0;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::function<void(HttpStream& stream)> stream;  // if set, makes the body instead
};

struct HttpOptions {
  std::string flag = "web_listen";  // the setting with the address, for error messages
  std::string address = {};         // host:port
  // PEM files, read again for every connection; empty: plain HTTP.
  std::string tls_cert = {};
  std::string tls_key = {};
  std::string tls_client_ca = {};  // read once. If set, clients must show a certificate that one of these signed
  // Time for a whole request to arrive, counted from the end of the previous request or from the start of the
  // connection, TLS handshake included.
  absl::Duration request = absl::Seconds(10);
  // Time for one request in all, from its first byte to the last byte of its answer.
  absl::Duration longest = absl::Seconds(150);
  int workers = 8;  // streams that are made at the same time; further ones wait
  // Called for every connection that the server cuts, with "deadline" or "crowded", on a thread of the server.
  std::function<void(std::string_view why)> on_cut = {};
};

// A read-only HTTP/1.1 server on one address, for the web page and for /metrics. Uses Boost.Beast's parser and Asio.
//
// 1. It refuses every method except GET and HEAD, and every request with a body. It offers neither ranges nor
//    compression.
// 2. On a loopback address it refuses a Host header that names another machine. Otherwise a stranger's page in a local
//    browser could point its own name at this address (DNS rebinding).
// 3. Every response has a Content-Security-Policy that lets the page run and load only this server's files.
// 4. No client waits for another client's connection: one thread serves all connections and never blocks on one. A
//    client has HttpOptions::request to bring a whole request, with a header of at most kLongestHeader bytes, and
//    HttpOptions::longest for everything, however busy its connection is.
// 5. There are kConnections places, at most kOfAPeer for one peer. A connection that finds no free place takes the
//    place of the one that has waited longest for its own client: one of the same peer, or else of the peer with the
//    most.
// Threads: the handler is called on the thread of (4) and must be quick. HttpResponse::stream runs on a worker. Stop
// and the destructor tell running streams that the client is gone, and wait for them.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest& request)>;

  static constexpr size_t kConnections = 256;
  static constexpr size_t kOfAPeer = 64;
  static constexpr uint32_t kLongestHeader = 16 << 10;

  // Unavailable: the address cannot be bound. InvalidArgument: the address or a certificate cannot be read.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, Handler handler);
  ~HttpServer();

  void Stop();  // idempotent

  // As bound: port 0 is replaced by the port in use.
  const std::string& address() const;

 private:
  class Core;
  explicit HttpServer(std::unique_ptr<Core> core);

  const std::unique_ptr<Core> core_;
};

}  // namespace msprobe::server
