#include "server/web/http_server.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>
#include <exception>
#include <limits>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "server/access/certificate.h"
#include "server/access/listen_address.h"
#include "server/access/net_stream.h"
#include "server/format/cat.h"
#include "server/web/http_target.h"

namespace msprobe::server {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using net::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 4096;
// Bytes that are read ahead: a request and the start of the next one. More is read when the request is answered.
constexpr size_t kMaxAhead = HttpServer::kLongestHeader + kReadBytes;
// Bytes that a stream may have written and the client not yet taken; then Write waits.
constexpr size_t kMaxHeld = size_t{1} << 20;
// Time for a client to receive the end of its answer before the connection is closed.
constexpr std::chrono::seconds kFarewell(1);
// The pause before the next attempt when no descriptor is free for another connection.
constexpr std::chrono::milliseconds kNoDescriptor(100);
constexpr std::string_view kHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cache-Control: no-store\r\n"
    "Accept-Ranges: none\r\n";

HttpResponse Plain(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text), nullptr};
}

// Gives a new connection the certificate as the files have it now. If the files are wrong, only that connection fails.
int ShowCertificate(SSL* connection, void* argument) {
  const auto& options = *static_cast<const HttpOptions*>(argument);
  return SSL_use_certificate_chain_file(connection, options.tls_cert.c_str()) == 1 &&
                 SSL_use_PrivateKey_file(connection, options.tls_key.c_str(), SSL_FILETYPE_PEM) == 1 &&
                 SSL_check_private_key(connection) == 1
             ? 1
             : 0;
}

// For IPv6 the /64 network, because one user can have as many addresses in it as they like.
std::string PeerOf(const tcp::endpoint& endpoint) {
  const net::ip::address address = endpoint.address();
  if (address.is_v4()) return address.to_string();
  if (address.to_v6().is_v4_mapped()) return net::ip::make_address_v4(net::ip::v4_mapped, address.to_v6()).to_string();
  net::ip::address_v6::bytes_type bytes = address.to_v6().to_bytes();
  if (!address.is_loopback()) std::fill(bytes.begin() + 8, bytes.end(), 0);
  return net::ip::make_address_v6(bytes).to_string();
}

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

class HttpServer::Core {
 public:
  Core(const HttpOptions& options, Handler handler)
      : options_(options), handler_(std::move(handler)), acceptor_(io_), pause_(io_), workers_(options.workers) {}
  ~Core() { Stop(); }

  absl::Status Listen();
  void Stop();
  const std::string& address() const { return address_; }

 private:
  class Connection;
  friend class Connection;
  using Connections = std::list<std::shared_ptr<Connection>>;

  absl::Status PrepareTls();
  void Accept();
  // Makes room for one more connection of a peer. False: there is no room.
  bool MakeRoom(const std::string& peer);
  HttpResponse Respond(const http::request<http::empty_body>& request, const std::string& peer) const;

  const HttpOptions options_;
  const Handler handler_;
  std::string address_;
  bool loopback_ = false;
  std::atomic<bool> stopping_ = false;

  net::io_context io_;
  std::optional<net::ssl::context> tls_;
  tcp::acceptor acceptor_;
  net::steady_timer pause_;
  Connections connections_;  // used only on the thread that runs io_
  net::thread_pool workers_;
  std::thread thread_;
};

// The connection of one client. Members without a guard are used only on the thread that runs io_.
class HttpServer::Core::Connection : public HttpStream, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Core* core, tcp::socket socket, std::string peer)
      : core_(core),
        peer_(std::move(peer)),
        deadline_(core->io_),
        stream_(std::move(socket), core->tls_.has_value() ? &*core->tls_ : nullptr) {}

  void Begin(Connections::iterator place) {
    place_ = place;
    Await(core_->options_.request);
    if (stream_.tls() == nullptr) return Read();
    stream_.Handshake(net::ssl::stream_base::server, [self = shared_from_this()](error_code error, size_t) {
      if (error) return self->Close();
      self->Read();
    });
  }

  const std::string& peer() const { return peer_; }
  // Since when the connection has been waiting for its client; nullopt: the server is working on an answer.
  std::optional<Clock::time_point> waiting_since() const {
    return phase_ == Phase::kWorking ? std::nullopt : std::optional(since_);
  }
  void Cut(std::string_view why) {
    if (phase_ == Phase::kClosed) return;
    if (core_->options_.on_cut) core_->options_.on_cut(why);
    Close();
  }
  void Close() {
    if (phase_ == Phase::kClosed) return;
    phase_ = Phase::kClosed;
    Leave();
    deadline_.cancel();
    error_code ignored;
    stream_.socket().close(ignored);
    core_->connections_.erase(place_);
  }

  // On the worker that makes the response.
  bool Write(std::string_view bytes) override {
    if (bytes.empty()) return !gone();
    {
      absl::MutexLock lock(&mu_);
      const auto room = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return gone_ || held_ < kMaxHeld; };
      mu_.Await(absl::Condition(&room));
      if (gone_) return false;
      Add(chunked_ ? absl::StrFormat("%x\r\n%s\r\n", bytes.size(), AbslView(bytes)) : std::string(bytes));
    }
    net::post(core_->io_, [self = shared_from_this()] { self->Send(); });
    return true;
  }
  bool gone() override {
    absl::MutexLock lock(&mu_);
    return gone_;
  }

 private:
  enum class Phase : uint8_t {
    kReading,   // waits for a request, or for the rest of one
    kWorking,   // a worker makes the answer
    kSending,   // the answer is complete and the client is taking it
    kFarewell,  // the client has the answer and is told that nothing follows
    kClosed,
  };

  void Await(absl::Duration patience) {
    deadline_.expires_after(absl::ToChronoNanoseconds(patience));
    deadline_.async_wait([self = shared_from_this()](error_code error) {
      // The timer may have been set again since this call was queued.
      if (!error && self->deadline_.expiry() <= Clock::now()) self->Cut("deadline");
    });
  }

  // Reads also while an answer is made: the bytes are the next request, or the news that the client is gone.
  void Read() {
    if (reading_ || phase_ == Phase::kClosed || in_.size() >= kMaxAhead) return;
    reading_ = true;
    stream_.Read(net::buffer(bytes_),
                 [self = shared_from_this()](error_code error, size_t bytes) { self->OnRead(error, bytes); });
  }

  void OnRead(error_code error, size_t bytes) {
    reading_ = false;
    if (phase_ == Phase::kClosed) return;
    if (error == net::error::eof && phase_ == Phase::kSending) {
      last_ = true;  // the client sends nothing more, but may still be listening
      return;
    }
    if (error) return Close();
    if (phase_ == Phase::kFarewell) {  // anything that still arrives is ignored
      in_.clear();
      return Read();
    }
    in_.append(bytes_.data(), bytes);
    if (phase_ == Phase::kReading) Parse();
    Read();
  }

  void Parse() {
    if (in_.empty()) return;
    if (!parser_.has_value()) {
      parser_.emplace();
      header_bytes_ = 0;
      parser_->header_limit(2 * kLongestHeader);  // the check below is the one that counts the whole header
      parser_->body_limit(std::numeric_limits<uint64_t>::max());
      began_ = Clock::now();
    }
    error_code error;
    const size_t used = parser_->put(net::buffer(in_), error);
    in_.erase(0, used);
    header_bytes_ += used;
    const bool more = error == http::error::need_more;
    if (header_bytes_ + (more ? in_.size() : 0) > kLongestHeader || error == http::error::header_limit) {
      return Answer(Plain(431, Cat("the header of a request may have ", kLongestHeader, " bytes\n")), false, true);
    }
    if (more) return;
    if (error) {
      return Answer(Plain(400, Cat("this is not a request of HTTP/1.1: ", error.message(), "\n")), false, true);
    }
    if (!parser_->is_header_done()) return;
    const http::request<http::empty_body>& request = parser_->get();
    const bool has_body = parser_->chunked() || parser_->content_length_remaining().value_or(0) > 0;
    const bool head = request.method() == http::verb::head;
    const bool last = !request.keep_alive() || has_body || core_->stopping_;
    HttpResponse answer;
    try {
      answer = core_->Respond(request, peer_);
    } catch (const std::exception&) {
      answer = Plain(500, "this request failed in the server\n");
    }
    if (has_body && answer.status == 200) answer = Plain(400, "a request to read has no body\n");
    chunked_ = request.version() >= 11;
    const bool ends_with_connection = answer.stream && !chunked_;
    Answer(std::move(answer), head, last || ends_with_connection);
  }

  void Answer(HttpResponse answer, bool head, bool last) {
    last_ = last;
    Await(core_->options_.longest - absl::FromChrono(Clock::now() - began_));
    std::string text =
        Cat("HTTP/1.1 ", answer.status, " ", View(http::obsolete_reason(http::int_to_status(answer.status))),
            "\r\nContent-Type: ", answer.type, "\r\n", kHeaders);
    if (answer.status == 401) text += "WWW-Authenticate: Bearer\r\n";
    if (answer.status == 405) text += "Allow: GET, HEAD\r\n";
    if (answer.status == 503) text += "Retry-After: 1\r\n";
    if (last_) text += "Connection: close\r\n";
    if (answer.stream && chunked_) text += "Transfer-Encoding: chunked\r\n";
    if (!answer.stream) text += Cat("Content-Length: ", answer.body.size(), "\r\n");
    text += "\r\n";
    if (!head) text += answer.body;
    {
      absl::MutexLock lock(&mu_);
      Add(std::move(text));
    }
    if (head || !answer.stream) {
      Made();
    } else {
      phase_ = Phase::kWorking;
      net::post(core_->workers_, [self = shared_from_this(), work = std::move(answer.stream)]() mutable {
        self->Work(std::move(work));
      });
    }
    Send();
  }

  // On a worker.
  void Work(std::function<void(HttpStream& stream)> work) {
    bool failed = gone();
    try {
      if (!failed) work(*this);
    } catch (const std::exception&) {
      failed = true;  // the client notices that the end is missing
    }
    work = nullptr;  // frees what it holds before the client gets the last byte
    if (!failed && chunked_) {
      absl::MutexLock lock(&mu_);
      if (!gone_) Add("0\r\n\r\n");
    }
    net::post(core_->io_, [self = shared_from_this(), failed] {
      if (failed) return self->Close();
      if (self->phase_ == Phase::kWorking) self->Made();
      self->Send();
    });
  }

  // The answer is complete; the rest is up to the client.
  void Made() {
    phase_ = Phase::kSending;
    since_ = Clock::now();
  }

  void Add(std::string bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    held_ += bytes.size();
    out_.push_back(std::move(bytes));
  }

  void Send() {
    if (sending_ || phase_ == Phase::kClosed) return;
    {
      absl::MutexLock lock(&mu_);
      if (gone_) out_.clear();
      written_ = std::exchange(out_, {});
    }
    if (written_.empty()) {
      if (phase_ == Phase::kSending) Sent();
      return;
    }
    sending_ = true;
    std::vector<net::const_buffer> buffers;
    for (const std::string& bytes : written_) buffers.push_back(net::buffer(bytes));
    stream_.Write(buffers, [self = shared_from_this()](error_code error, size_t bytes) { self->OnSent(error, bytes); });
  }

  void OnSent(error_code error, size_t bytes) {
    sending_ = false;
    if (phase_ == Phase::kClosed) return;
    if (error) return Close();
    {
      absl::MutexLock lock(&mu_);
      held_ -= bytes;
    }
    Send();
  }

  // The client has taken the whole answer.
  void Sent() {
    if (last_ || gone()) return Farewell();
    phase_ = Phase::kReading;
    since_ = Clock::now();
    parser_.reset();
    Await(core_->options_.request);
    Parse();
    Read();
  }

  // Closing a connection with unread input would discard output that the client has not read yet.
  void Farewell() {
    phase_ = Phase::kFarewell;
    since_ = Clock::now();
    deadline_.expires_after(kFarewell);
    deadline_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->Close();
    });
    if (stream_.tls() != nullptr) {
      stream_.Shutdown([self = shared_from_this()](error_code, size_t) { self->Close(); });
    } else {
      error_code ignored;
      stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
      in_.clear();
      Read();
    }
  }

  void Leave() {
    absl::MutexLock lock(&mu_);
    gone_ = true;
  }

  Core* const core_;
  const std::string peer_;
  net::steady_timer deadline_;
  NetStream stream_;
  Connections::iterator place_;
  Phase phase_ = Phase::kReading;
  Clock::time_point since_ = Clock::now();
  Clock::time_point began_;  // when the first bytes of the request came
  std::array<char, kReadBytes> bytes_;
  std::string in_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  size_t header_bytes_ = 0;  // of the current request's header so far
  bool reading_ = false;
  bool sending_ = false;
  bool last_ = false;
  bool chunked_ = true;              // written before a worker streams
  std::deque<std::string> written_;  // being sent

  absl::Mutex mu_;
  std::deque<std::string> out_ ABSL_GUARDED_BY(mu_);
  size_t held_ ABSL_GUARDED_BY(mu_) = 0;  // bytes of out_ and written_
  bool gone_ ABSL_GUARDED_BY(mu_) = false;
};

absl::Status HttpServer::Core::PrepareTls() {
  if (options_.tls_cert.empty()) return absl::OkStatus();
  if (absl::Status status = CheckKeyPair(options_.tls_cert, options_.tls_key); !status.ok()) return status;
  SSL_CTX* const context = tls_.emplace(net::ssl::context::tls_server).native_handle();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_cert_cb(context, ShowCertificate, const_cast<HttpOptions*>(&options_));
  if (options_.tls_client_ca.empty()) return absl::OkStatus();
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  if (SSL_CTX_load_verify_locations(context, options_.tls_client_ca.c_str(), nullptr) == 1) return absl::OkStatus();
  ERR_clear_error();
  return absl::InvalidArgumentError(Cat("--tls_client_ca=", options_.tls_client_ca, " holds no certificate"));
}

absl::Status HttpServer::Core::Listen() {
  const auto parsed = ParseListenTcp(options_.flag, options_.address);
  if (!parsed.ok()) return parsed.status();
  loopback_ = parsed->loopback;
  if (absl::Status status = PrepareTls(); !status.ok()) return status;

  error_code error;
  tcp::resolver resolver(io_);
  for (const auto& found : resolver.resolve(parsed->host, Cat(parsed->port), tcp::resolver::passive, error)) {
    acceptor_.close(error);
    if (acceptor_.open(found.endpoint().protocol(), error)) continue;
    // No SO_REUSEPORT: two servers on one port would share its connections and nobody would notice.
    acceptor_.set_option(net::socket_base::reuse_address(true), error);
    if (!error && !acceptor_.bind(found.endpoint(), error) && !acceptor_.listen(SOMAXCONN, error)) break;
  }
  if (error || !acceptor_.is_open()) {
    return absl::UnavailableError(Cat("--", options_.flag, "=", options_.address,
                                      ": cannot listen there; the address is in use or not of this machine"));
  }
  address_ = Cat(options_.address.substr(0, options_.address.rfind(':')), ":", acceptor_.local_endpoint().port());
  Accept();
  thread_ = std::thread([this] { io_.run(); });
  return absl::OkStatus();
}

void HttpServer::Core::Stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  net::post(io_, [this] {
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    while (!connections_.empty()) connections_.front()->Close();
  });
  // Streams see that their clients are gone, end, and tell io_ so.
  workers_.join();
  thread_.join();
}

void HttpServer::Core::Accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (!acceptor_.is_open() || stopping_) return;
    if (error) {
      pause_.expires_after(kNoDescriptor);
      pause_.async_wait([this](error_code cancelled) {
        if (!cancelled) Accept();
      });
      return;
    }
    error_code gone;
    const std::string peer = PeerOf(socket.remote_endpoint(gone));
    if (!gone && MakeRoom(peer)) {
      socket.set_option(tcp::no_delay(true), gone);
      connections_.push_back(std::make_shared<Connection>(this, std::move(socket), peer));
      connections_.back()->Begin(std::prev(connections_.end()));
    }
    Accept();
  });
}

bool HttpServer::Core::MakeRoom(const std::string& peer) {
  std::map<std::string, size_t> count;
  for (const auto& connection : connections_) ++count[connection->peer()];
  std::string from = peer;
  if (count[peer] < kOfAPeer) {
    if (connections_.size() < kConnections) return true;
    from = std::max_element(count.begin(), count.end(), [](const auto& one, const auto& other) {
             return one.second < other.second;
           })->first;
  }
  std::shared_ptr<Connection> longest;
  for (const auto& connection : connections_) {
    const auto since = connection->waiting_since();
    if (connection->peer() != from || !since.has_value()) continue;
    if (longest == nullptr || *since < *longest->waiting_since()) longest = connection;
  }
  if (longest == nullptr) return false;
  longest->Cut("crowded");
  return true;
}

HttpResponse HttpServer::Core::Respond(const http::request<http::empty_body>& request, const std::string& peer) const {
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    return Plain(405, "this server is for reading: GET and HEAD only\n");
  }
  const std::optional<HostPort> host = ParseHostPort(View(request[http::field::host]));
  if (loopback_ && (request.count(http::field::host) != 1 || !host.has_value() || !IsLoopback(*host))) {
    return Plain(403, "this server is asked for under a name that is not this machine's; use localhost\n");
  }
  std::optional<HttpTarget> target = ParseTarget(View(request.target()));
  if (!target.has_value()) return Plain(400, "the address of a request begins with / and is encoded with %XX\n");
  HttpRequest given{std::move(target->path), std::move(target->query), {}, peer};
  const std::string_view authorization = View(request[http::field::authorization]);
  constexpr std::string_view kBearer = "Bearer ";
  if (authorization.starts_with(kBearer)) given.bearer = authorization.substr(kBearer.size());
  return handler_(given);
}

HttpServer::HttpServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
HttpServer::~HttpServer() = default;
void HttpServer::Stop() { core_->Stop(); }
const std::string& HttpServer::address() const { return core_->address(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options, Handler handler) {
  auto core = std::make_unique<Core>(options, std::move(handler));
  if (absl::Status status = core->Listen(); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core)));
}

}  // namespace msprobe::server
