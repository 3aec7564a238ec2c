#include "server/web/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr absl::Duration kSoon = absl::Seconds(20);
constexpr char kNobody[] = "127.0.0.1";

HttpResponse Echo(const HttpRequest& request) {
  std::string text = request.path + "|" + request.bearer;
  for (const auto& [name, value] : request.query) text += Cat("|", name, "=", value);
  return {200, "text/plain", text, nullptr};
}

std::string Get(std::string_view target, std::string_view headers = "Host: localhost\r\n") {
  return Cat("GET ", target, " HTTP/1.1\r\n", headers, "\r\n");
}

// A connection that sends exactly the bytes of a test, from any loopback address.
class RawClient {
 public:
  RawClient(int port, const std::string& from) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    inet_pton(AF_INET, from.c_str(), &here.sin_addr);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&here), sizeof(here)), 0);
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &there.sin_addr);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&there), sizeof(there)) == 0;
  }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_), said_(std::move(other.said_)) {}
  ~RawClient() {
    if (socket_ >= 0) close(socket_);
  }
  int socket() const { return socket_; }
  bool connected() const { return connected_; }
  // False: the server is gone.
  bool Say(std::string_view bytes) {
    return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Everything received until `end` is, or until the connection ends, or until nothing has come for too long.
  std::string Hear(std::string_view end = "") {
    while (end.empty() || said_.find(end) == std::string::npos) {
      pollfd readable{socket_, POLLIN, 0};
      if (poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(kSoon))) != 1) return said_ + "[silence]";
      char bytes[65536];
      const ssize_t got = recv(socket_, bytes, sizeof(bytes), 0);
      if (got <= 0) return said_;
      said_.append(bytes, got);
    }
    return said_;
  }
  // Whether the connection has ended, without waiting.
  bool Ended() {
    pollfd readable{socket_, POLLIN, 0};
    char byte;
    return poll(&readable, 1, 0) == 1 && recv(socket_, &byte, 1, MSG_PEEK) <= 0;
  }

 private:
  int socket_;
  bool connected_ = false;
  std::string said_;
};

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpServer::Handler handler, HttpOptions options = {}) {
    if (options.address.empty()) options.address = "127.0.0.1:0";
    options.on_cut = [this](std::string_view why) {
      absl::MutexLock lock(&mu_);
      ++cut_[std::string(why)];
    };
    auto server = HttpServer::Start(options, std::move(handler));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  int port() const { return std::stoi(server_->address().substr(server_->address().rfind(':') + 1)); }
  RawClient Connect(const std::string& from = kNobody) const { return RawClient(port(), from); }
  // The whole answer to one request, over a connection of its own.
  std::string Ask(const std::string& request, const std::string& from = kNobody) const {
    RawClient client = Connect(from);
    client.Say(request.substr(0, request.size() - 2) + "Connection: close\r\n\r\n");
    return client.Hear();
  }
  bool AwaitCut(const std::string& why, int times = 1) {
    absl::MutexLock lock(&mu_);
    const auto cut = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return cut_[why] >= times; };
    return mu_.AwaitWithTimeout(absl::Condition(&cut), kSoon);
  }

  absl::Mutex mu_;
  std::map<std::string, int> cut_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, PathsParametersAndTokensAreDecoded) {
  Start(Echo);
  EXPECT_THAT(Ask(Get("/a/b?x=1%20%2B&x=2&y=", "Host: localhost\r\nAuthorization: Bearer secret\r\n")),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\n/a/b|secret|x=1 +|y=")));
}

TEST_F(HttpServerTest, EveryAnswerTellsTheBrowserWhatThePageMayDo) {
  Start(Echo);
  for (const std::string& request : {Get("/"), Get("/", "Host: evil\r\n"), Get("nonsense")}) {
    EXPECT_THAT(Ask(request),
                AllOf(HasSubstr("Content-Security-Policy: default-src 'none';"), Not(HasSubstr("unsafe")),
                      HasSubstr("X-Content-Type-Options: nosniff"), HasSubstr("Cache-Control: no-store")));
  }
}

TEST_F(HttpServerTest, NothingButReading) {
  Start(Echo);
  for (const char* method : {"POST", "DELETE", "PUT", "OPTIONS", "TRACE", "CONNECT", "PATCH", "BREW"}) {
    EXPECT_THAT(Ask(Cat(method, " / HTTP/1.1\r\nHost: localhost\r\n\r\n")), StartsWith("HTTP/1.1 405 ")) << method;
  }
  EXPECT_THAT(Ask("HEAD /abc HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("Content-Length: 5\r\n"), EndsWith("\r\n\r\n")));
}

TEST_F(HttpServerTest, AnotherMachinesNameIsRefusedWhereOnlyThisOneIsServed) {
  Start(Echo);
  for (const char* host : {"localhost", "LOCALHOST:9", "127.0.0.1:8080", "[::1]:8080"}) {
    EXPECT_THAT(Ask(Get("/", Cat("Host: ", host, "\r\n"))), StartsWith("HTTP/1.1 200 ")) << host;
  }
  for (const char* host : {"evil.example:80", "127.attacker.example", "127.attacker.example:8080", "127.0.0.1.evil",
                           "localhost.evil", "localhost@evil", ""}) {
    EXPECT_THAT(Ask(Get("/", Cat("Host: ", host, "\r\n"))), StartsWith("HTTP/1.1 403 ")) << host;
  }
  EXPECT_THAT(Ask(Get("/", "Host: localhost\r\nHost: evil.example\r\n")), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Ask(Get("/", "")), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Ask(Get("http://evil.example/")), StartsWith("HTTP/1.1 400 "));
}

TEST_F(HttpServerTest, AStreamComesInPieces) {
  Start([](const HttpRequest&) {
    return HttpResponse{200, "text/plain", "", [](HttpStream& stream) {
                          EXPECT_TRUE(stream.Write("one "));
                          EXPECT_TRUE(stream.Write("two"));
                        }};
  });
  EXPECT_THAT(Ask(Get("/")), EndsWith("\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"));
  EXPECT_THAT(Ask("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"), EndsWith("\r\n\r\none two"));
  EXPECT_THAT(Ask("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n"), EndsWith("\r\n\r\n"));
}

TEST_F(HttpServerTest, AStreamHearsThatItsClientIsGone) {
  absl::Notification ended;
  Start([&](const HttpRequest&) {
    return HttpResponse{200, "text/plain", "", [&](HttpStream& stream) {
                          stream.Write("begin");
                          while (!stream.gone()) std::this_thread::yield();
                          ended.Notify();
                        }};
  });
  {
    RawClient client = Connect();
    client.Say(Get("/"));
    client.Hear("begin");
  }
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(kSoon));
}

TEST_F(HttpServerTest, StoppingEndsStreams) {
  Start([&](const HttpRequest&) {
    return HttpResponse{200, "text/plain", "", [&](HttpStream& stream) {
                          stream.Write("begin");
                          while (!stream.gone()) std::this_thread::yield();
                        }};
  });
  RawClient client = Connect();
  client.Say(Get("/"));
  client.Hear("begin");
  server_->Stop();
  EXPECT_THAT(client.Hear(), Not(HasSubstr("0\r\n\r\n"))) << "the client sees that the end is missing";
}

TEST_F(HttpServerTest, RequestsThatComeTogetherAreAnsweredInTheirOrder) {
  Start(Echo);
  RawClient client = Connect();
  client.Say(Get("/1") + Get("/2") + "GET /3 HT");
  EXPECT_THAT(client.Hear("/2|"), AllOf(HasSubstr("/1|"), Not(HasSubstr("/3|"))));
  client.Say("TP/1.1\r\nHost: localhost\r\n\r\n");
  client.Hear("/3|");
}

TEST_F(HttpServerTest, ABodyIsNotWaitedFor) {
  Start(Echo);
  RawClient post = Connect();
  post.Say("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx");
  EXPECT_THAT(post.Hear(), AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Connection: close\r\n")));
  for (const char* body : {"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"}) {
    RawClient get = Connect();
    get.Say(Get("/", Cat("Host: localhost\r\n", body)));
    EXPECT_THAT(get.Hear(), AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("Connection: close\r\n"))) << body;
  }
}

TEST_F(HttpServerTest, WhatIsNoRequestIsRefused) {
  Start(Echo);
  for (const char* text :
       {"\x16\x03\x01\x02", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n"}) {
    RawClient client = Connect();
    client.Say(Cat(text, "\r\n\r\n"));
    EXPECT_THAT(client.Hear(), StartsWith("HTTP/1.1 400 ")) << text;
  }
}

TEST_F(HttpServerTest, AHeaderIsNoLongerThanItMayBe) {
  Start(Echo);
  EXPECT_THAT(Ask(Get("/", Cat("Host: localhost\r\nCookie: ", std::string(12'000, 'x'), "\r\n"))),
              StartsWith("HTTP/1.1 200 "));
  RawClient client = Connect();
  client.Say("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 100'000 && client.Say("X-Filler: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n"); ++i) {
  }
  EXPECT_THAT(client.Hear(), StartsWith("HTTP/1.1 431 "));
  for (const int lines : {1100, 1300}) {
    RawClient many = Connect();
    many.Say("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (int i = 0; i < lines; ++i) many.Say("X-Filler: xx\r\n");
    if (lines == 1100) many.Say("\r\n");
    EXPECT_THAT(many.Hear(), StartsWith(lines == 1100 ? "HTTP/1.1 200 " : "HTTP/1.1 431 ")) << lines;
  }
}

TEST_F(HttpServerTest, RangesDoNotMakeMoreOfAnAnswer) {
  Start([](const HttpRequest&) { return HttpResponse{200, "text/plain", std::string(3000, 'x'), nullptr}; });
  std::string ranges = "Host: localhost\r\nRange: bytes=0-";
  for (int i = 0; i < 2000; ++i) ranges += ",0-";
  const std::string answer = Ask(Get("/", ranges + "\r\n"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(answer.size(), 4000);
}

TEST_F(HttpServerTest, ARequestThatDripsHasOneDeadline) {
  Start(Echo, {.request = absl::Milliseconds(300)});
  RawClient silent = Connect(), dripping = Connect(), again = Connect();
  again.Say(Get("/again"));
  again.Hear("/again|");
  const std::string request = Get("/" + std::string(10'000, 'x'));
  const absl::Time began = absl::Now();
  for (size_t i = 0; i < request.size() && dripping.Say(request.substr(i, 1)); ++i) {
    absl::SleepFor(absl::Milliseconds(1));  // between two drops
  }
  EXPECT_LT(absl::Now() - began, absl::Seconds(5)) << "10 s of drops";
  EXPECT_EQ(dripping.Hear(), "");
  EXPECT_EQ(silent.Hear(), "");
  EXPECT_THAT(again.Hear(), EndsWith("/again|"));
  EXPECT_TRUE(AwaitCut("deadline", 3));
}

TEST_F(HttpServerTest, WhoDoesNotReadIsCutAndHoldsUpNobody) {
  absl::Notification cut;
  Start(
      [&](const HttpRequest& request) {
        if (request.path != "/large") return Echo(request);
        return HttpResponse{200, "text/plain", "", [&](HttpStream& stream) {
                              const std::string block(100'000, 'x');
                              while (stream.Write(block)) {
                              }
                              cut.Notify();
                            }};
      },
      {.longest = absl::Milliseconds(700), .workers = 1});
  RawClient deaf = Connect();
  deaf.Say(Get("/large"));
  EXPECT_THAT(Ask(Get("/small")), EndsWith("/small|"));
  EXPECT_TRUE(cut.WaitForNotificationWithTimeout(kSoon));
  EXPECT_TRUE(AwaitCut("deadline"));
  EXPECT_THAT(Ask(Get("/small")), EndsWith("/small|"));
}

// The open descriptors of this process, which has both ends of each connection.
int OpenFiles() {
  int files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) ++files;
  return files;
}

TEST_F(HttpServerTest, IdleConnectionsGiveWayToWhoAsks) {
  rlimit files{4096, 4096};
  setrlimit(RLIMIT_NOFILE, &files);
  Start(Echo);
  RawClient neighbour = Connect("127.0.0.9");
  neighbour.Say(Get("/1"));
  neighbour.Hear("/1|");
  std::vector<RawClient> idle;
  const int before = OpenFiles();
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(Connect());
    ASSERT_TRUE(idle.back().connected()) << i;
    idle.back().Say("GET / HTTP/1.1\r\n");
    if (i % 100 != 99) continue;
    EXPECT_THAT(Ask(Get("/in")), EndsWith("/in|")) << "the same peer, behind " << i;
  }
  EXPECT_TRUE(AwaitCut("crowded", 1000 - static_cast<int>(HttpServer::kOfAPeer)));
  EXPECT_LE(OpenFiles() - before, 1000 + static_cast<int>(HttpServer::kOfAPeer) + 2);
  EXPECT_FALSE(neighbour.Ended()) << "one peer's crowd costs another nothing";
  neighbour.Say(Get("/2"));
  EXPECT_THAT(neighbour.Hear("/2|"), EndsWith("/2|"));
}

TEST_F(HttpServerTest, APeerAmongManyIsServed) {
  rlimit files{4096, 4096};
  setrlimit(RLIMIT_NOFILE, &files);
  Start(Echo);
  std::vector<RawClient> crowd;
  for (int peer = 1; peer <= 20; ++peer) {
    for (size_t i = 0; i < HttpServer::kOfAPeer; ++i) crowd.push_back(Connect(Cat("127.0.1.", peer)));
    EXPECT_THAT(Ask(Get("/in"), "127.0.0.9"), EndsWith("/in|")) << peer;
  }
}

TEST_F(HttpServerTest, AnAddressThatCannotBeIsRefused) {
  Start(Echo);
  const auto other = HttpServer::Start({.flag = "metrics_listen", .address = server_->address()}, Echo);
  EXPECT_TRUE(absl::IsUnavailable(other.status()));
  EXPECT_THAT(std::string(other.status().message()), HasSubstr(Cat("--metrics_listen=", server_->address())));
  EXPECT_TRUE(absl::IsUnavailable(HttpServer::Start({.address = "256.0.0.1:1"}, Echo).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start({.address = "nonsense"}, Echo).status()));
}

TEST_F(HttpServerTest, LocalhostAndIpv6AreServed) {
  Start(Echo, {.address = "localhost:0"});
  EXPECT_THAT(server_->address(), StartsWith("localhost:"));
  Start(Echo, {.address = "[::]:0"});
  EXPECT_THAT(Ask(Get("/over", "Host: anything\r\n")), EndsWith("/over|")) << "over IPv4";
}

// Makes certificates with the program openssl, as an operator would.
class SecureHttpServerTest : public HttpServerTest {
 protected:
  void Make(const std::string& name, const std::string& common_name) {
    const std::string command =
        Cat("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout ",
            Path(name + ".key"), " -out ", Path(name + ".pem"), " -subj /CN=", common_name,
            " -addext subjectAltName=IP:127.0.0.1 2>/dev/null");
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  std::string Path(const std::string& name) const { return directory_ / name; }
  HttpOptions Options() const { return {.tls_cert = Path("server.pem"), .tls_key = Path("server.key")}; }

  // The answer over TLS to a client that trusts one certificate and shows another; empty: no answer.
  std::string AskSecurely(const std::string& trusted, const std::string& shown = "") {
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_load_verify_locations(context, Path(trusted + ".pem").c_str(), nullptr);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    if (!shown.empty()) {
      SSL_CTX_use_certificate_file(context, Path(shown + ".pem").c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context, Path(shown + ".key").c_str(), SSL_FILETYPE_PEM);
    }
    RawClient client = Connect();
    SSL* const tls = SSL_new(context);
    SSL_set_fd(tls, client.socket());
    std::string heard;
    const std::string request = Get("/secure", "Host: localhost\r\nConnection: close\r\n");
    if (SSL_connect(tls) == 1 && SSL_write(tls, request.data(), static_cast<int>(request.size())) > 0) {
      char bytes[4096];
      for (int got; (got = SSL_read(tls, bytes, sizeof(bytes))) > 0;) heard.append(bytes, got);
    }
    SSL_free(tls);
    SSL_CTX_free(context);
    return heard;
  }

  ScratchDirectory directory_;
};

TEST_F(SecureHttpServerTest, ACertificateThatIsReplacedIsShownNext) {
  Make("server", "first");
  Start(Echo, Options());
  std::filesystem::copy_file(Path("server.pem"), Path("before.pem"));
  EXPECT_THAT(AskSecurely("before"), EndsWith("/secure|"));
  Make("server", "second");
  EXPECT_EQ(AskSecurely("before"), "");
  EXPECT_THAT(AskSecurely("server"), EndsWith("/secure|"));
  EXPECT_THAT(Ask(Get("/")), Not(HasSubstr("HTTP"))) << "plain text at a TLS port";
}

TEST_F(SecureHttpServerTest, ClientsShowACertificateWhereOneIsWanted) {
  Make("server", "server");
  Make("client", "client");
  HttpOptions options = Options();
  options.tls_client_ca = Path("client.pem");
  Start(Echo, options);
  EXPECT_EQ(AskSecurely("server"), "");
  EXPECT_THAT(AskSecurely("server", "client"), EndsWith("/secure|"));
}

TEST_F(SecureHttpServerTest, AHandshakeThatNeverEndsIsCutAndHoldsUpNobody) {
  Make("server", "server");
  HttpOptions options = Options();
  options.request = absl::Seconds(2);
  Start(Echo, options);
  std::vector<RawClient> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(Connect());
  EXPECT_THAT(AskSecurely("server"), EndsWith("/secure|"));
  EXPECT_TRUE(AwaitCut("deadline", 20));
}

TEST_F(SecureHttpServerTest, AKeyOfAnotherCertificateIsRefusedAtTheStart) {
  Make("server", "server");
  Make("other", "other");
  HttpOptions options = Options();
  options.tls_key = Path("other.key");
  options.address = "127.0.0.1:0";
  EXPECT_THAT(std::string(HttpServer::Start(options, Echo).status().message()), HasSubstr("other.key"));
}

}  // namespace
}  // namespace msprobe::server
