#include "agent/core/transport/stream/connector.h"

#include <algorithm>
#include <utility>

#include "agent/core/config/server_address.h"
#include "agent/core/shell_word.h"
#include "agent/core/str_cat.h"
#include "grpcpp/security/credentials.h"

namespace msprobe::core {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// An embedded server takes a moment to come; only after this is it worth a line.
constexpr seconds kEmbeddedPatience(20);
// Servers of a cluster agree on where a rank belongs; one that is being changed may not, for a moment.
constexpr int kMaxRedirects = 4;
constexpr seconds kFirstServerStartPause(3);
constexpr seconds kLongestServerStartPause(20);

}  // namespace

Connector::Connector(Route route, std::shared_ptr<Doorbell> bell, const Log* log)
    : route_(std::move(route)),
      bell_(std::move(bell)),
      log_(log),
      settled_(route_.settled),
      server_start_pause_(kFirstServerStartPause) {}

absl::StatusOr<Route> RouteOf(const SessionOrigin& origin, const std::string& settled, const std::string& binary) {
  Route route;
  route.targets.assign(origin.servers().begin(), origin.servers().end());
  route.access = {.ca = origin.ca(), .cert = origin.cert(), .key = origin.key(), .token_file = origin.token_file()};
  if (!route.targets.empty()) {
    route.settled = settled;
    return route;
  }
  if (origin.dump_path().empty()) return absl::DataLossError("it does not say which server it was for");
  absl::StatusOr<EmbeddedServer> embedded = EmbeddedServer::Prepare(origin.dump_path(), binary);
  if (!embedded.ok()) return embedded.status();
  route.embedded = *std::move(embedded);
  return route;
}

std::unique_ptr<IngestStream> Connector::TryStart(Clock::time_point now) {
  if (now < next_attempt_) return nullptr;
  if (attempts_++ == 0) first_attempt_ = now;
  if (!route_.embedded.has_value()) {
    target_ = !settled_.empty() ? settled_ : !told_.empty() ? told_ : route_.targets[next_target_];
    const absl::StatusOr<ServerAccess::Opened> access = route_.access.Open(target_);
    if (access.ok()) return StartStream(now, *access);
    Failed(now, grpc::Status(grpc::StatusCode::UNAUTHENTICATED, std::string(access.status().message())));
    return nullptr;
  }
  const std::optional<std::string> advertised = route_.embedded->AdvertisedAddress();
  if (!advertised.has_value() || (target_failed_ && *advertised == target_)) StartServer(now);
  if (!advertised.has_value()) {
    BackOff(now);
    return nullptr;
  }
  target_ = *advertised;
  return StartStream(now, {grpc::InsecureChannelCredentials(), {}});
}

std::unique_ptr<IngestStream> Connector::StartStream(Clock::time_point now, const ServerAccess::Opened& access) {
  std::unique_ptr<IngestStream> stream = IngestStream::Start(target_, access, bell_);
  if (stream == nullptr)
    Failed(now, grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no further thread can be started"));
  return stream;
}

std::string Connector::client_option() const {
  return route_.embedded.has_value() ? Cat("--data_dir ", ShellWord(route_.embedded->data_directory()))
                                     : Cat("--server ", ShellWord(target_));
}

void Connector::StartServer(Clock::time_point now) {
  if (now < next_server_start_) return;
  next_server_start_ = now + server_start_pause_;
  server_start_pause_ = std::min<Clock::duration>(server_start_pause_ * 2, kLongestServerStartPause);
  if (const absl::Status status = route_.embedded->Start(); !status.ok()) {
    Warn(Cat("the embedded server cannot be started: ", status.message()));
  }
}

void Connector::BackOff(Clock::time_point now) {
  // 10 ms, doubled up to 320 ms for an embedded server, whose start is under way, and up to 5 s for one elsewhere.
  const int doublings = std::min(attempts_ - 1, route_.embedded.has_value() ? 5 : 9);
  next_attempt_ = now + std::min<milliseconds>(milliseconds(10) * (1 << std::max(doublings, 0)), seconds(5));
  if (route_.embedded.has_value() && now - first_attempt_ > kEmbeddedPatience) {
    Warn(Cat("the embedded server has not come; see ", route_.embedded->data_directory(), "/server.log"));
  }
}

void Connector::Succeeded(const std::string& server_version) {
  if (warned_) log_->Info(Cat("msprobe: connected to the server at ", target_, " ", server_version));
  settled_ = target_;
  redirects_ = 0;
  warned_ = false;
  trouble_.clear();
  target_failed_ = false;
  attempts_ = 0;
  next_server_start_ = Clock::time_point::min();
  server_start_pause_ = kFirstServerStartPause;
}

void Connector::Failed(Clock::time_point now, const grpc::Status& status) {
  trouble_ = status.error_message();
  if (attempts_ == 0) first_attempt_ = now;  // a connection was lost
  attempts_ = std::max(attempts_, 1);
  target_failed_ = true;
  redirects_ = 0;
  if (!route_.embedded.has_value() && settled_.empty() && std::exchange(told_, {}).empty()) {
    next_target_ = (next_target_ + 1) % route_.targets.size();
  }
  if (!route_.embedded.has_value()) {
    Warn(Cat("the server at ", target_, " cannot be reached (", status.error_message(), ")"));
  } else if (status.error_code() != grpc::StatusCode::UNAVAILABLE) {
    Warn(Cat("the embedded server at ", target_, " refused: ", status.error_message()));
  }
  BackOff(now);
}

void Connector::Redirected(Clock::time_point now, const std::string& address) {
  if (++redirects_ > kMaxRedirects || !ParseServerAddress(address).ok()) {
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
