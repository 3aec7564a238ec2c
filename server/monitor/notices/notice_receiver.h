#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "msprobe/v1/monitor.pb.h"
#include "server/monitor/notices/http_post.h"

namespace msprobe::server {

// What a receiver is to hear of an alarm.
struct Notice {
  enum class Event : uint8_t { kRaised, kChanged, kEnded };
  Event event = Event::kRaised;
  std::string id;  // the same for every attempt, and of no other notice
  std::string run;
  v1::Alarm alarm;
  const v1::Alarm* told = nullptr;  // as the receiver knows it; null: it does not
  absl::Time made = absl::InfinitePast();
};

// A program outside the server that hears of alarms. A new kind is a file here and a line in MakeReceivers.
// Threads: one at a time.
class NoticeReceiver {
 public:
  NoticeReceiver(std::string_view kind, HttpUrl url);
  virtual ~NoticeReceiver() = default;

  // The request for a notice, sent at `now`.
  struct Request {
    HttpPoster::Headers headers;
    std::string body;
  };
  virtual Request RequestFor(const Notice& notice, absl::Time now) const = 0;
  // How often it wants to hear of an alarm that goes on, though nothing has changed.
  virtual absl::Duration repeat() const { return absl::InfiniteDuration(); }
  // When an alarm that has ended is over for this receiver, which hears of it then.
  virtual absl::Time EndOf(const v1::Alarm& alarm) const { return absl::FromUnixMicros(alarm.ended_unix_us()); }

  const std::string& kind() const { return kind_; }  // "webhook"
  const HttpUrl& url() const { return url_; }
  uint64_t id() const { return id_; }  // of kind and URL

 private:
  const std::string kind_;
  const HttpUrl url_;
  const uint64_t id_;
};

// The settings of all receivers.
struct NoticeOptions {
  std::vector<HttpUrl> webhooks, alertmanagers;
  std::string secret;                             // of the webhooks' signatures, as bytes
  std::string ca;                                 // PEM file with the authorities that are trusted; empty: the system's
  absl::Duration timeout = absl::Seconds(10);     // of a request
  absl::Duration first_pause = absl::Seconds(1);  // after a failure; doubled each time
  absl::Duration longest_pause = absl::Minutes(5);
  absl::Duration change_period = absl::Seconds(10);  // between notices of an alarm that only changes
};

// The fields that both kinds tell of an alarm, for people: "rank3, step 17: loss is nan".
std::string SummaryOf(const std::string& run, const v1::Alarm& alarm);

}  // namespace msprobe::server
