#include "server/web/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/synchronization/notification.h"
#include "server/format/cat.h"
#include "server/store/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kSoon = absl::Seconds(20);

HttpResponse Echo(const HttpRequest& request) {
  std::string text = request.path + "|" + request.bearer;
  for (const auto& [name, value] : request.query) text += "|" + name + "=" + value;
  return {200, "text/plain", text, nullptr};
}

int PortOf(const HttpServer& server) { return std::stoi(server.address().substr(server.address().rfind(':') + 1)); }

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpServer::Handler handler, HttpOptions options = {}) {
    options.address = "127.0.0.1:0";
    auto server = HttpServer::Start(options, std::move(handler));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  httplib::Client Client() const { return httplib::Client("127.0.0.1", PortOf(*server_)); }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, PathsParametersAndTokensAreDecoded) {
  Start(Echo);
  httplib::Headers token = {{"Authorization", "Bearer secret"}};
  const auto answer = Client().Get("/a/b?x=1%20%2B&x=2&y=", token);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "/a/b|secret|x=1 +|y=");
}

TEST_F(HttpServerTest, EveryAnswerTellsTheBrowserWhatThePageMayDo) {
  Start(Echo);
  const auto answer = Client().Get("/");
  const std::string policy = answer->get_header_value("Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, testing::Not(HasSubstr("unsafe")));
  EXPECT_EQ(answer->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(answer->get_header_value("Cache-Control"), "no-store");
}

TEST_F(HttpServerTest, NothingButReading) {
  Start(Echo);
  EXPECT_EQ(Client().Post("/", "x=1", "text/plain")->status, 405);
  EXPECT_EQ(Client().Delete("/")->status, 405);
  EXPECT_EQ(Client().Head("/")->status, 200);
}

TEST_F(HttpServerTest, AnotherMachinesNameIsRefusedWhereOnlyThisOneIsServed) {
  Start(Echo);
  EXPECT_EQ(Client().Get("/", {{"Host", "evil.example:80"}})->status, 403);
  EXPECT_EQ(Client().Get("/", {{"Host", "localhost"}})->status, 200);
  EXPECT_EQ(Client().Get("/", {{"Host", "localhost:9"}})->status, 200);
}

TEST_F(HttpServerTest, AStreamComesInPieces) {
  Start([](const HttpRequest&) {
    return HttpResponse{200, "text/plain", "", [](HttpStream& stream) {
                          EXPECT_TRUE(stream.Write("one "));
                          EXPECT_TRUE(stream.Write("two"));
                        }};
  });
  EXPECT_EQ(Client().Get("/")->body, "one two");
}

TEST_F(HttpServerTest, AStreamHearsThatItsClientIsGone) {
  absl::Notification begun, ended;
  Start([&](const HttpRequest&) {
    return HttpResponse{200, "text/plain", "", [&](HttpStream& stream) {
                          stream.Write("begin");
                          begun.Notify();
                          while (!stream.gone()) std::this_thread::yield();
                          ended.Notify();
                        }};
  });
  Client().Get("/", [](const char*, size_t) { return false; });  // hangs up at the first bytes
  ASSERT_TRUE(begun.WaitForNotificationWithTimeout(kSoon));
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(kSoon));
}

TEST_F(HttpServerTest, StoppingEndsStreams) {
  absl::Notification begun;
  Start([&](const HttpRequest&) {
    return HttpResponse{200, "text/plain", "", [&](HttpStream& stream) {
                          stream.Write("begin");
                          begun.Notify();
                          while (!stream.gone()) std::this_thread::yield();
                        }};
  });
  std::thread client([this] { Client().Get("/"); });
  ASSERT_TRUE(begun.WaitForNotificationWithTimeout(kSoon));
  server_->Stop();
  client.join();
}

TEST_F(HttpServerTest, AnAddressInUseIsRefused) {
  Start(Echo);
  const auto other = HttpServer::Start({.address = server_->address()}, Echo);
  EXPECT_TRUE(absl::IsUnavailable(other.status()));
  EXPECT_THAT(std::string(other.status().message()), HasSubstr(server_->address()));
}

// Certificates are made by the program openssl, as an operator would.
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

  ScratchDirectory directory_;
};

TEST_F(SecureHttpServerTest, ACertificateThatIsReplacedIsShownNext) {
  Make("server", "first");
  Start(Echo, Options());
  const auto get = [this](const std::string& trusted) {
    httplib::SSLClient client("127.0.0.1", PortOf(*server_));
    client.set_ca_cert_path(Path(trusted).c_str());
    client.enable_server_certificate_verification(true);
    return static_cast<bool>(client.Get("/"));
  };
  std::filesystem::copy_file(Path("server.pem"), Path("before.pem"));
  EXPECT_TRUE(get("before.pem"));
  Make("server", "second");
  EXPECT_FALSE(get("before.pem"));
  EXPECT_TRUE(get("server.pem"));
  EXPECT_FALSE(Client().Get("/")) << "plain text at a TLS port";
}

TEST_F(SecureHttpServerTest, ClientsShowACertificateWhereOneIsWanted) {
  Make("server", "server");
  Make("client", "client");
  HttpOptions options = Options();
  options.tls_client_ca = Path("client.pem");
  Start(Echo, options);
  httplib::SSLClient without("127.0.0.1", PortOf(*server_));
  without.enable_server_certificate_verification(false);
  EXPECT_FALSE(without.Get("/"));
  httplib::SSLClient with("127.0.0.1", PortOf(*server_), Path("client.pem"), Path("client.key"));
  with.enable_server_certificate_verification(false);
  EXPECT_TRUE(with.Get("/"));
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
