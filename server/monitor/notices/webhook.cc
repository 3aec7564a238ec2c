#include "server/monitor/notices/webhook.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "server/format/cat.h"
#include "server/format/json/json_writer.h"
#include "server/format/storage/key.h"
#include "server/monitor/notices/notice_json.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kSecretPrefix = "whsec_";
constexpr size_t kShortestSecret = 16;

std::string_view TypeOf(Notice::Event event) {
  switch (event) {
    case Notice::Event::kRaised:
      return "alarm.raised";
    case Notice::Event::kChanged:
      return "alarm.changed";
    case Notice::Event::kEnded:
      return "alarm.ended";
  }
  return "";
}

void WriteCount(JsonWriter& json, std::string_view name, uint64_t value) {
  json.Name(name);
  json.Uint64(value);
}

// NaN and the infinities become strings, because JSON has no numbers for them.
void WriteValue(JsonWriter& json, double value) {
  if (std::isfinite(value)) {
    json.Double(value);
  } else {
    json.Text(JsonNumber(value));
  }
}

template <typename Items, typename WriteItem>
void WriteList(JsonWriter& json, std::string_view name, const Items& items, WriteItem write) {
  json.Name(name);
  json.StartArray();
  for (const auto& item : items) write(item);
  json.EndArray();
}

void WriteAlarm(JsonWriter& json, const std::string& run, const v1::Alarm& alarm) {
  json.StartObject();
  WriteText(json, "run", run);
  WriteCount(json, "number", alarm.number());
  WriteText(json, "rule", alarm.rule());
  WriteText(json, "kind", alarm.kind());
  WriteCount(json, "step", alarm.step());
  WriteText(json, "rank", RankName(alarm.rank()));
  WriteText(json, "series", alarm.series());
  json.Name("value");
  WriteValue(json, alarm.value());
  json.Name("limit");
  WriteValue(json, alarm.limit());
  WriteText(json, "why", alarm.why());
  json.Name("recent");
  json.StartArray();
  for (int i = 0; i < alarm.recent_step_size(); ++i) {
    json.StartArray();
    json.Uint(alarm.recent_step(i));
    WriteValue(json, alarm.recent_value(i));
    json.EndArray();
  }
  json.EndArray();
  WriteList(json, "stack", alarm.stack(), [&](const std::string& line) { json.Text(line); });
  WriteText(json, "raised", TimeText(absl::FromUnixMicros(alarm.raised_unix_us())));
  json.Name("ended");
  if (alarm.ended_unix_us() == 0) {
    json.Null();
  } else {
    json.Text(TimeText(absl::FromUnixMicros(alarm.ended_unix_us())));
  }
  WriteCount(json, "offences", alarm.offences());
  WriteCount(json, "last_step", alarm.last_step());
  WriteList(json, "ranks", alarm.ranks(), [&](const v1::Rank& rank) { json.Text(RankName(rank)); });
  WriteList(json, "others", alarm.others(), [&](const std::string& series) { json.Text(series); });
  json.Name("captured");
  if (const v1::Alarm::Captured& captured = alarm.captured(); alarm.has_captured()) {
    json.StartObject();
    WriteText(json, "asked", captured.asked());
    WriteCount(json, "first_step", captured.first_step());
    WriteCount(json, "last_step", captured.last_step());
    WriteCount(json, "processes", captured.processes());
    WriteText(json, "refused", captured.refused());
    json.EndObject();
  } else {
    json.Null();
  }
  json.EndObject();
}

}  // namespace

absl::StatusOr<std::string> WebhookSecret(std::string_view text) {
  const absl::string_view stripped = absl::StripAsciiWhitespace(AbslView(text));
  const std::string_view given(stripped.data(), stripped.size());
  std::string decoded;
  std::string_view secret = given;
  if (given.starts_with(kSecretPrefix)) {
    if (!absl::Base64Unescape(AbslView(given.substr(kSecretPrefix.size())), &decoded)) {
      return absl::InvalidArgumentError("behind whsec_ it has no base64");
    }
    secret = decoded;
  }
  if (secret.size() < kShortestSecret) {
    return absl::InvalidArgumentError(
        Cat("its secret has ", secret.size(), " bytes; it should have at least ", kShortestSecret));
  }
  return std::string(secret);
}

std::string WebhookSignature(const std::string& secret, std::string_view id, int64_t unix_seconds,
                             std::string_view body) {
  const std::string signed_text = Cat(id, ".", unix_seconds, ".", body);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(signed_text.data()), signed_text.size(), digest.data(), &size);
  return Cat("v1,", absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(digest.data()), size)));
}

NoticeReceiver::Request Webhook::RequestFor(const Notice& notice, absl::Time now) const {
  JsonWriter json(/*strict=*/true);
  json.StartObject();
  WriteText(json, "type", TypeOf(notice.event));
  WriteText(json, "timestamp", TimeText(notice.made));
  json.Name("data");
  WriteAlarm(json, notice.run, notice.alarm);
  json.EndObject();
  Request request{{}, json.Take()};
  const int64_t seconds = absl::ToUnixSeconds(now);
  request.headers = {{"webhook-id", notice.id}, {"webhook-timestamp", Cat(seconds)}};
  if (!secret_.empty()) {
    request.headers.emplace_back("webhook-signature", WebhookSignature(secret_, notice.id, seconds, request.body));
  }
  return request;
}

}  // namespace msprobe::server
