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
  std::map<std::string, std::string> query;  // decoded; of a name that stands twice, the first
  std::string bearer;                        // of the header "Authorization: Bearer ..."; empty: none
  std::string peer;                          // the address that asks, without its port; of IPv6 the network (/64)
};

// The body of a response that is made while it is sent.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // On the thread that streams. Waits while the client has not taken what was written before. False: the client is
  // gone.
  virtual bool Write(std::string_view bytes) = 0;
  // Whether the client is gone, its time is over, or this server ends. Any thread; cheap.
  virtual bool gone() = 0;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::function<void(HttpStream& stream)> stream;  // not empty: instead of body
};

struct HttpOptions {
  std::string flag = "web_listen";  // the setting that address comes from, for messages
  std::string address = {};         // host:port
  // PEM files, read anew for every connection; empty: plain.
  std::string tls_cert = {};
  std::string tls_key = {};
  std::string tls_client_ca = {};  // read once. Not empty: who comes has to show a certificate that one of these signed
  // For a whole request to come, from the end of the one before or from the connection on, TLS handshake included.
  absl::Duration request = absl::Seconds(10);
  // Of a request in all: from its first byte to the last byte of its answer.
  absl::Duration longest = absl::Seconds(150);
  int workers = 8;  // responses that are being made at once, as streams; further ones wait
  // Told of every connection that was closed before its time: "deadline", "crowded". From a thread of the server.
  std::function<void(std::string_view why)> on_cut = {};
};

// HTTP/1.1 on one address, for reading: the web page and /metrics. Over Boost.Beast's parser and Asio.
//
// 1. Every method but GET and HEAD is refused, and so is a request with a body. Ranges and compression are not offered:
//    every answer is whole.
// 2. Where only this machine is served, a Host header that names another is refused: a page of strangers, opened in a
//    browser here, could otherwise have its own name lead to this address (DNS rebinding).
// 3. Every response carries a Content-Security-Policy that lets the page run and load nothing but this server's files.
// 4. Nobody waits for another's connection: one thread serves all of them without ever waiting for one. A connection
//    costs no thread, and has HttpOptions::request to bring a whole request (of kLongestHeader bytes at most) and
//    HttpOptions::longest for everything, however busy it looks.
// 5. There are kConnections places, of which one peer has kOfAPeer. Who comes when they are taken gets the place of the
//    connection that has been waiting longest for its own client (of that peer; else of the peer that has most).
// Threads: the handler is called on the thread of (4) and must be quick; HttpResponse::stream runs on a worker. Stop
// and destruction wait for streams under way, which then are told that the client is gone.
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
