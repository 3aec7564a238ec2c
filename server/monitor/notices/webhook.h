#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "server/monitor/notices/notice_receiver.h"

namespace msprobe::server {

// Posts each notice as JSON, signed by the scheme of Standard Webhooks. docs/monitoring.md has the body.
class Webhook final : public NoticeReceiver {
 public:
  // secret: the key's bytes; empty: unsigned.
  Webhook(HttpUrl url, std::string secret) : NoticeReceiver("webhook", std::move(url)), secret_(std::move(secret)) {}
  Request RequestFor(const Notice& notice, absl::Time now) const override;

 private:
  const std::string secret_;
};

// The key in a file's text: what "whsec_" is before in base64, else the text itself, without the white space around it.
// InvalidArgument: it has fewer than 16 bytes, or no base64 behind whsec_. The message does not show it.
absl::StatusOr<std::string> WebhookSecret(std::string_view text);
// "v1,BASE64": HMAC-SHA256 of "ID.SECONDS.BODY".
std::string WebhookSignature(const std::string& secret, std::string_view id, int64_t unix_seconds,
                             std::string_view body);

}  // namespace msprobe::server
