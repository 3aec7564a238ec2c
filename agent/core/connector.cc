#include "agent/core/connector.h"

#include <algorithm>
#include <utility>

#include "agent/core/server_address.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// An embedded server takes a moment to come; only after this is it worth a line.
constexpr seconds kEmbeddedPatience(20);
// Servers of a cluster agree on where a rank belongs; one that is being changed may not, for a moment.
constexpr int kMostRedirects = 4;
constexpr seconds kFirstServerStartPause(3);
constexpr seconds kLongestServerStartPause(20);

}  // namespace

Connector::Connector(std::vector<std::string> targets, std::optional<EmbeddedServer> embedded, ServerAccess access,
                     std::shared_ptr<Doorbell> bell, const Log* log)
    : configured_targets_(std::move(targets)),
      embedded_(std::move(embedded)),
      access_(std::move(access)),
      bell_(std::move(bell)),
      log_(log),
      server_start_pause_(kFirstServerStartPause) {}

std::unique_ptr<IngestStream> Connector::TryStart(Clock::time_point now) {
  if (now < next_attempt_) return nullptr;
  if (attempts_++ == 0) first_attempt_ = now;
  if (!embedded_.has_value()) {
    target_ = !settled_.empty() ? settled_ : !told_.empty() ? told_ : configured_targets_[next_target_];
    const absl::StatusOr<ServerAccess::Opened> access = access_.Open();
    if (access.ok()) return IngestStream::Start(target_, *access, bell_);
    Failed(now, grpc::Status(grpc::StatusCode::UNAUTHENTICATED, std::string(access.status().message())));
    return nullptr;
  }
  const std::optional<std::string> advertised = embedded_->AdvertisedAddress();
  if (!advertised.has_value() || (target_failed_ && *advertised == target_)) StartServer(now);
  if (!advertised.has_value()) {
    BackOff(now);
    return nullptr;
  }
  target_ = *advertised;
  return IngestStream::Start(target_, {grpc::InsecureChannelCredentials(), {}}, bell_);
}

void Connector::StartServer(Clock::time_point now) {
  if (now < next_server_start_) return;
  next_server_start_ = now + server_start_pause_;
  server_start_pause_ = std::min<Clock::duration>(server_start_pause_ * 2, kLongestServerStartPause);
  if (const absl::Status status = embedded_->Start(); !status.ok()) {
    Warn(Cat("the embedded server cannot be started: ", status.message()));
  }
}

void Connector::BackOff(Clock::time_point now) {
  // 10 ms, doubled up to 320 ms for an embedded server, whose start is under way, and up to 5 s for one elsewhere.
  const int doublings = std::min(attempts_ - 1, embedded_.has_value() ? 5 : 9);
  next_attempt_ = now + std::min<milliseconds>(milliseconds(10) * (1 << std::max(doublings, 0)), seconds(5));
  if (embedded_.has_value() && now - first_attempt_ > kEmbeddedPatience) {
    Warn(Cat("the embedded server has not come; see ", embedded_->data_directory(), "/server.log"));
  }
}

void Connector::Succeeded(const std::string& server_version) {
  if (warned_) log_->Info(Cat("msprobe: connected to the server at ", target_, " ", server_version));
  settled_ = target_;
  redirects_ = 0;
  warned_ = false;
  target_failed_ = false;
  attempts_ = 0;
  next_server_start_ = Clock::time_point::min();
  server_start_pause_ = kFirstServerStartPause;
}

void Connector::Failed(Clock::time_point now, const grpc::Status& status) {
  if (attempts_ == 0) first_attempt_ = now;  // a connection was lost
  attempts_ = std::max(attempts_, 1);
  target_failed_ = true;
  redirects_ = 0;
  if (!embedded_.has_value() && settled_.empty() && std::exchange(told_, {}).empty()) {
    next_target_ = (next_target_ + 1) % configured_targets_.size();
  }
  if (!embedded_.has_value()) {
    Warn(Cat("the server at ", target_, " cannot be reached (", status.error_message(), ")"));
  } else if (status.error_code() != grpc::StatusCode::UNAVAILABLE) {
    Warn(Cat("the embedded server at ", target_, " refused: ", status.error_message()));
  }
  BackOff(now);
}

void Connector::Redirected(Clock::time_point now, const std::string& address) {
  if (++redirects_ > kMostRedirects || !ParseServerAddress(address).ok()) {
    Failed(now, grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, Cat("it sends this rank to ", address)));
    return;
  }
  settled_.clear();
  told_ = address;
  next_attempt_ = now;
}

void Connector::Warn(const std::string& why) {
  if (warned_) return;
  warned_ = true;
  log_->Warning(Cat("msprobe: ", why, "; records wait, within the configured bounds, until it is there."));
}

}  // namespace msprobe::core
