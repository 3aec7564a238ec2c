#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/monitor/notices/alertmanager.h"
#include "server/monitor/notices/http_post.h"
#include "server/monitor/notices/webhook.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;
using testing::Not;

HttpUrl UrlOf(const std::string& text) {
  auto url = HttpUrl::Parse(text);
  EXPECT_TRUE(url.ok()) << url.status();
  return url.ok() ? *url : HttpUrl();
}

TEST(HttpUrlTest, TakesHttpAndHttpsAndNothingElse) {
  const HttpUrl url = UrlOf("https://[::1]:8443/hooks/a?key=b");
  EXPECT_EQ(url.Origin(), "https://[::1]:8443");
  EXPECT_EQ(url.target, "/hooks/a?key=b");
  EXPECT_EQ(UrlOf("http://alerts.example").port, 80);
  EXPECT_EQ(UrlOf("https://alerts.example?a").target, "/?a");
  for (const char* wrong : {"ftp://a/", "a:80", "file:///etc/passwd", "http://", "http://u:p@a/", "http://a/#b",
                            "http://a/ b", "http://a:0/", "http://a:70000/", "http://a\r\nb/", ""}) {
    EXPECT_EQ(HttpUrl::Parse(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(HttpPosterTest, SaysWhyThereIsNoAnswer) {
  HttpPoster poster("", absl::Seconds(10));
  const auto answer = poster.Post(UrlOf("http://127.0.0.1:1/"), {}, "{}");
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("connecting: Connection refused"));
  poster.Stop();
  EXPECT_TRUE(absl::IsCancelled(poster.Post(UrlOf("http://127.0.0.1:1/"), {}, "{}").status()));
}

// Takes one connection and the request, sends `parts` apart, and closes; or waits until the client does.
class Receiver {
 public:
  // endless: sent again and again, until the client closes.
  explicit Receiver(std::vector<std::string> parts, bool silent_then = false, std::string endless = "") {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/a?b";
    thread_ = std::thread([this, parts = std::move(parts), silent_then, endless = std::move(endless)] {
      const int connection = accept(listener_, nullptr, nullptr);
      char bytes[4096];
      while (!request_.ends_with("{}")) {
        const ssize_t count = read(connection, bytes, sizeof(bytes));
        if (count <= 0) break;
        request_.append(bytes, static_cast<size_t>(count));
      }
      for (const std::string& part : parts) {
        // The client may have heard enough.
        if (send(connection, part.data(), part.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(part.size())) break;
        std::this_thread::yield();
      }
      asked_.Notify();
      while (!endless.empty() && send(connection, endless.data(), endless.size(), MSG_NOSIGNAL) > 0) {
      }
      while (silent_then && read(connection, bytes, sizeof(bytes)) > 0) {
      }
      close(connection);
    });
  }
  ~Receiver() {
    shutdown(listener_, SHUT_RDWR);  // where the client never came
    if (thread_.joinable()) thread_.join();
    close(listener_);
  }
  const std::string& url() const { return url_; }
  void WaitUntilAsked() { asked_.WaitForNotification(); }
  std::string Request() {
    thread_.join();
    return request_;
  }

 private:
  int listener_ = -1;
  std::string url_;
  std::string request_;  // of thread_ until it has ended
  absl::Notification asked_;
  std::thread thread_;
};

TEST(HttpPosterTest, SendsARequestAndReadsItsAnswer) {
  Receiver receiver({"HTTP/1.1 20", "2 Accepted\r\nContent-Length: 5\r", "\n\r\nab", "cde"});
  HttpPoster poster("", absl::Seconds(60));
  const auto answer = poster.Post(UrlOf(receiver.url()), {{"webhook-id", "msg_1"}}, "{}");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 202);
  EXPECT_EQ(answer->body, "abcde");
  const std::string request = receiver.Request();
  EXPECT_THAT(request, testing::StartsWith("POST /a?b HTTP/1.1\r\nHost: 127.0.0.1:"));
  EXPECT_THAT(request, HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(request, HasSubstr("\r\nwebhook-id: msg_1\r\n"));
  EXPECT_THAT(request, testing::EndsWith("\r\nContent-Length: 2\r\n\r\n{}"));
}

TEST(HttpPosterTest, AStatusIsAnAnswerWhateverBecomesOfItsBody) {
  const auto body_of = [](std::vector<std::string> parts) {
    Receiver receiver(std::move(parts));
    HttpPoster poster("", absl::Seconds(60));
    const auto answer = poster.Post(UrlOf(receiver.url()), {}, "{}");
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? std::to_string(answer->status) + answer->body : "";
  };
  EXPECT_EQ(body_of({"HTTP/1.1 200 OK\r\n\r\n", "to its end"}), "200to its end");
  EXPECT_EQ(body_of({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "0\r\n\r\n"}), "200ab");
  EXPECT_EQ(body_of({"HTTP/1.1 204 No Content\r\n\r\n"}), "204");
  EXPECT_EQ(body_of({"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 10", "0 Continue\r\n\r\n",
                     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"}),
            "200ab")
      << "interim answers are none";
  EXPECT_EQ(body_of({"HTTP/1.1 500 Wrong\r\nContent-Length: 9\r\n\r\nab"}), "500") << "it breaks off";
  EXPECT_EQ(body_of({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnone"}), "200") << "no length";
  const std::string length = std::to_string(HttpPoster::kLongestAnswer + 1);
  EXPECT_EQ(body_of({"HTTP/1.1 200 OK\r\nContent-Length: " + length + "\r\n\r\na"}), "200") << "too long";
}

TEST(HttpPosterTest, AnAnswerWithoutEndIsBrokenOff) {
  const std::string chunked = "HTTP/1.1 500 Wrong\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const auto& [begin, more] : {std::pair(chunked + "1;", std::string(4096, 'a')),      // the extension of a chunk
                                    std::pair(chunked + "0\r\n", std::string("X: y\r\n")),  // trailers
                                    std::pair(chunked, std::string("1\r\na\r\n"))}) {
    Receiver receiver({begin}, false, more);
    HttpPoster poster("", absl::Minutes(4));
    const auto answer = poster.Post(UrlOf(receiver.url()), {}, "{}");
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->status, 500);
    EXPECT_EQ(answer->body, "");
  }
}

TEST(HttpPosterTest, WithoutAStatusThereIsNoAnswer) {
  const auto why = [](std::vector<std::string> parts) {
    Receiver receiver(std::move(parts));
    HttpPoster poster("", absl::Seconds(60));
    const auto answer = poster.Post(UrlOf(receiver.url()), {}, "{}");
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
    return std::string(answer.status().message());
  };
  EXPECT_EQ(why({}), "the answer: End of file");
  EXPECT_EQ(why({"HTTP/1.1 200 OK\r\nServer:"}), "the answer: partial message");
  EXPECT_EQ(why({"220 smtp.example ESMTP\r\n"}), "the answer: bad version");
  EXPECT_EQ(why({"HTTP/1.1 200 OK\r\na: " + std::string(HttpPoster::kLongestAnswer, 'b')}),
            "the answer: header limit exceeded");
}

TEST(HttpPosterTest, WaitsForItsTimeoutAndNoLonger) {
  Receiver receiver({"HTTP/1.1 200 OK\r\n"}, true);
  HttpPoster poster("", absl::Milliseconds(50));
  // On a busy machine it may be over before the answer is waited for.
  const absl::Status status = poster.Post(UrlOf(receiver.url()), {}, "{}").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), testing::EndsWith(": no answer in time"));
}

TEST(HttpPosterTest, StopEndsThePostUnderWay) {
  Receiver receiver({"HTTP/1.1 200 OK\r\n"}, true);
  HttpPoster poster("", absl::Minutes(1));
  std::thread stops([&] {
    receiver.WaitUntilAsked();
    poster.Stop();
  });
  EXPECT_TRUE(absl::IsCancelled(poster.Post(UrlOf(receiver.url()), {}, "{}").status()));
  stops.join();
}

// The example of Standard Webhooks' own libraries.
TEST(WebhookTest, SignsAsStandardWebhooksDoes) {
  const auto secret = WebhookSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
  ASSERT_TRUE(secret.ok()) << secret.status();
  EXPECT_EQ(WebhookSignature(*secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, R"({"test": 2432232314})"),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(WebhookTest, RefusesSecretsThatAreNone) {
  EXPECT_EQ(*WebhookSecret("  0123456789abcdef \n"), "0123456789abcdef");
  EXPECT_EQ(WebhookSecret("short").status().message(), "its secret has 5 bytes; it should have at least 16");
  EXPECT_EQ(WebhookSecret("whsec_%%%").status().message(), "behind whsec_ it has no base64");
}

v1::Alarm SomeAlarm() {
  v1::Alarm alarm;
  alarm.set_number(3);
  alarm.set_rule("not-finite");
  alarm.set_kind("not_finite");
  alarm.set_step(17);
  alarm.mutable_rank()->set_kind(v1::Rank::RANK);
  alarm.mutable_rank()->set_number(2);
  alarm.set_series("loss");
  alarm.set_value(std::numeric_limits<double>::quiet_NaN());
  alarm.set_why("it is nan");
  alarm.set_raised_unix_us(1'000'000'000'000'000);
  return alarm;
}

TEST(WebhookTest, ANoticeIsStrictJson) {
  const Webhook webhook(UrlOf("http://a/"), "");
  Notice notice{.event = Notice::Event::kRaised, .id = "msg_1", .run = "job", .alarm = SomeAlarm(), .told = nullptr};
  notice.made = absl::FromUnixMicros(1'000'000'000'500'000);
  const NoticeReceiver::Request request = webhook.RequestFor(notice, absl::FromUnixSeconds(1'000'000'060));
  EXPECT_THAT(request.body, HasSubstr(R"({"type":"alarm.raised","timestamp":"2001-09-09T01:46:40.500Z","data":{)"
                                      R"("run":"job","number":3,"rule":"not-finite","kind":"not_finite","step":17,)"
                                      R"("rank":"rank2","series":"loss","value":"NaN")"));
  EXPECT_THAT(request.body, HasSubstr(R"("ended":null)"));
  EXPECT_THAT(request.headers, testing::ElementsAre(testing::Pair("webhook-id", "msg_1"),
                                                    testing::Pair("webhook-timestamp", "1000000060")))
      << "unsigned without a secret";
}

TEST(AlertmanagerTest, AnAlarmGoesOnForAMinuteAtLeastAndIsResolved) {
  const Alertmanager receiver(UrlOf("http://a:9093/prefix/"));
  EXPECT_EQ(receiver.url().target, "/prefix/api/v2/alerts");
  Notice notice{.event = Notice::Event::kRaised, .id = "", .run = "job", .alarm = SomeAlarm(), .told = nullptr};
  const absl::Time now = absl::FromUnixSeconds(1'000'000'010);
  EXPECT_THAT(receiver.RequestFor(notice, now).body,
              HasSubstr(R"("startsAt":"2001-09-09T01:46:40.000Z","endsAt":"2001-09-09T01:51:50.000Z"}])"));
  notice.alarm.set_ended_unix_us(1'000'000'020'000'000);
  EXPECT_THAT(receiver.RequestFor(notice, now).body, HasSubstr(R"("endsAt":"2001-09-09T01:47:40.000Z"})"));
  notice.alarm.set_ended_unix_us(1'000'000'100'000'000);
  EXPECT_THAT(receiver.RequestFor(notice, now).body, HasSubstr(R"("endsAt":"2001-09-09T01:48:20.000Z"})"));
}

TEST(AlertmanagerTest, AnotherFirstOffenceResolvesTheLabelsThatWereTold) {
  const Alertmanager receiver(UrlOf("http://a:9093"));
  const v1::Alarm told = SomeAlarm();
  Notice notice{.event = Notice::Event::kChanged, .id = "", .run = "job", .alarm = told, .told = &told};
  const absl::Time now = absl::FromUnixSeconds(1'000'000'010);
  EXPECT_THAT(receiver.RequestFor(notice, now).body, Not(HasSubstr("},{")));
  notice.alarm.set_series("grad_norm");
  const std::string body = receiver.RequestFor(notice, now).body;
  EXPECT_THAT(
      body,
      testing::MatchesRegex(
          R"re(.*"series":"loss".*"endsAt":"2001-09-09T01:46:50.000Z"},.*"series":"grad_norm".*"endsAt":"2001-09-09T01:51:50.000Z".*)re"));
}

}  // namespace
}  // namespace msprobe::server
