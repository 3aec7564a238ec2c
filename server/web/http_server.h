#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace httplib {
class Server;
struct Request;
struct Response;
}  // namespace httplib

namespace msprobe::server {

struct HttpRequest {
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded; of a name that stands twice, the first
  std::string bearer;                        // of the header "Authorization: Bearer ..."; empty: none
};

// The body of a response that is made while it is sent.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // On the thread that streams. False: the client is gone.
  virtual bool Write(std::string_view bytes) = 0;
  // Whether the client is gone, or this server ends. Any thread, while the response is being made; looks at the
  // connection ten times a second at most.
  virtual bool gone() = 0;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::function<void(HttpStream& stream)> stream;  // not empty: instead of body
};

struct HttpOptions {
  std::string address = {};  // host:port
  // PEM files, read anew for every connection; empty: plain.
  std::string tls_cert = {};
  std::string tls_key = {};
  std::string tls_client_ca = {};  // read once. Not empty: who comes has to show a certificate that one of these signed
};

// HTTP/1.1 on one address, for reading. A thin coat over cpp-httplib.
//
// 1. Every method but GET and HEAD is refused.
// 2. Where only this machine is served, so is a Host header that names another: a page of strangers, opened in a
// browser
//    here, could otherwise have its own name lead to this address (DNS rebinding).
// 3. Every response carries a Content-Security-Policy that lets the page run and load nothing but this server's files.
// 4. At most kConnections are served at once, further ones wait; one that says nothing is closed after kQuiet.
// Threads: the handler is called from several. Stop and destruction wait for responses under way, whose streams then
// say that they are gone.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest& request)>;

  static constexpr size_t kConnections = 16;
  static constexpr int kQuietSeconds = 2;      // between two requests
  static constexpr int kTransferSeconds = 10;  // of a request, or for a client to take what it asked for

  // Unavailable: the address cannot be bound. InvalidArgument: the certificate cannot be read.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, Handler handler);
  ~HttpServer();

  void Stop();  // idempotent

  // As bound: port 0 is replaced by the port in use.
  const std::string& address() const { return address_; }

 private:
  struct Stopping;

  HttpServer(const HttpOptions& options, Handler handler);
  absl::Status Listen(const HttpOptions& options);
  void Answer(const httplib::Request& request, httplib::Response& response) const;
  HttpResponse Respond(const httplib::Request& request) const;

  std::string address_;
  const Handler handler_;
  const bool loopback_;
  const std::shared_ptr<Stopping> stopping_;
  std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
};

}  // namespace msprobe::server
