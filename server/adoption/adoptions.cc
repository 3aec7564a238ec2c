#include "server/adoption/adoptions.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "agent/core/process_identity.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

// How often Look runs.
constexpr absl::Duration kLook = absl::Seconds(1);

void Say(core::Log::Severity severity, std::string_view text) {
  if (severity >= core::Log::Severity::kWarning) {
    LogWarning("{}", text);
  } else {
    LogInfo("{}", text);
  }
}

struct HostAndPort {
  std::string host, port;
};

HostAndPort Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostAndPort split{.host = address.substr(0, colon), .port = address.substr(colon + 1)};
  if (split.host.starts_with('[') && split.host.ends_with(']'))
    split.host = split.host.substr(1, split.host.size() - 2);
  return split;
}

bool SameAddress(const sockaddr* one, const sockaddr* other) {
  if (one == nullptr || one->sa_family != other->sa_family) return false;
  char texts[2][NI_MAXHOST];
  const socklen_t size = one->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return getnameinfo(one, size, texts[0], NI_MAXHOST, nullptr, 0, NI_NUMERICHOST) == 0 &&
         getnameinfo(other, size, texts[1], NI_MAXHOST, nullptr, 0, NI_NUMERICHOST) == 0 &&
         std::string_view(texts[0]) == texts[1];
}

bool IsLoopbackAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// Whether a host is this machine, as seen from the network namespace with that inode number.
bool IsThisHost(const std::string& host, uint64_t network) {
  const addrinfo hints{.ai_flags = 0,
                       .ai_family = AF_UNSPEC,
                       .ai_socktype = SOCK_STREAM,
                       .ai_protocol = 0,
                       .ai_addrlen = 0,
                       .ai_addr = nullptr,
                       .ai_canonname = nullptr,
                       .ai_next = nullptr};
  addrinfo* found = nullptr;
  ifaddrs* own = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  bool is_this = false;
  if (getifaddrs(&own) == 0) {
    for (const addrinfo* at = found; at != nullptr && !is_this; at = at->ai_next) {
      // Every namespace has a loopback of its own.
      is_this = IsLoopbackAddress(at->ai_addr) && network == core::NetworkNamespace();
      for (const ifaddrs* with = own; with != nullptr && !is_this; with = with->ifa_next) {
        is_this = !IsLoopbackAddress(at->ai_addr) && SameAddress(with->ifa_addr, at->ai_addr);
      }
    }
    freeifaddrs(own);
  }
  freeaddrinfo(found);
  return is_this;
}

bool SameSocket(const std::string& one, const std::string& other) {
  struct stat a {
  }, b{};
  return stat(one.c_str(), &a) == 0 && stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

constexpr std::string_view kUnix = "unix:";

}  // namespace

Adoptions::Adoptions(AdoptionsOptions options)
    : options_(std::move(options)),
      directory_(options_.dump_path.empty() ? options_.shared_directory : Cat(options_.dump_path, "/.msprobe/spool")),
      log_(Say) {}

void Adoptions::Start(std::vector<std::string> addresses) {
  addresses_ = std::move(addresses);
  thread_ = std::thread([this] { Run(); });
}

void Adoptions::Stop() {
  {
    core::MutexLock lock(&mu_);
    stop_ = true;
  }
  stopped_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

bool Adoptions::Awaits(const std::string& session) const {
  const std::string name = core::ToHex(session);
  {
    core::MutexLock lock(&mu_);
    if (refused_.contains(name)) return false;
    if (const auto known = ours_.find(name); known != ours_.end() && !known->second) return false;
  }
  return core::LeftSession::IsThere(directory_, name);
}

void Adoptions::Run() {
  const auto period = absl::ToChronoMilliseconds(kLook);
  while (!stop_) {
    Look();
    const auto next = core::CondVar::Clock::now() + period;
    core::MutexLock lock(&mu_);
    while (!stop_ && stopped_.WaitUntil(&mu_, next)) {
    }
  }
}

void Adoptions::Look() {
  bool any = false;
  for (const std::string& name : core::LeftSession::Names(directory_)) {
    if (stop_) return;
    if (!IsOurs(name)) continue;
    any = true;
    idle_ = false;
    Adopt(name);
  }
  idle_ = !any;
  looked_ = true;
}

bool Adoptions::IsOurs(const std::string& name) {
  {
    core::MutexLock lock(&mu_);
    if (refused_.contains(name)) return false;
    if (const auto known = ours_.find(name); known != ours_.end()) return known->second;
  }
  const absl::StatusOr<core::SessionOrigin> origin = core::LeftSession::Origin(directory_, name);
  if (absl::IsNotFound(origin.status())) return false;
  const bool ours = origin.ok() && (options_.dump_path.empty() ? NamesUs(*origin) : origin->servers().empty());
  // A damaged file beside this server's own data is worth a line; in /dev/shm it may be anybody's.
  if (!origin.ok() && !options_.dump_path.empty()) LogWarning("{}", std::string(origin.status().message()));
  core::MutexLock lock(&mu_);
  ours_[name] = ours;
  return ours;
}

bool Adoptions::NamesUs(const core::SessionOrigin& origin) const {
  return std::any_of(origin.servers().begin(), origin.servers().end(), [&](const std::string& named) {
    return std::any_of(addresses_.begin(), addresses_.end(), [&](const std::string& own) {
      if (named.starts_with(kUnix) || own.starts_with(kUnix)) {
        return named.starts_with(kUnix) && own.starts_with(kUnix) &&
               SameSocket(named.substr(kUnix.size()), own.substr(kUnix.size()));
      }
      const HostAndPort asked = Split(named);
      return asked.port == Split(own).port && IsThisHost(asked.host, origin.network());
    });
  });
}

void Adoptions::Adopt(const std::string& name) {
  absl::StatusOr<std::unique_ptr<core::LeftSession>> left = core::LeftSession::TakeOver(directory_, name);
  // The process lives, or somebody else is sending the session to this server.
  if (absl::IsUnavailable(left.status()) || absl::IsNotFound(left.status())) return;
  if (!left.ok()) return Refuse(name, left.status());
  const v1::Hello& hello = (*left)->origin().hello();
  LogInfo("adopting what process {} of run {} left: session {}, {} bytes", hello.process_id(), hello.run(), name,
          (*left)->bytes());
  core::Route own;
  own.targets = {addresses_.front()};
  absl::StatusOr<core::Route> route =
      options_.dump_path.empty() ? core::RouteOf((*left)->origin(), (*left)->server(), "") : std::move(own);
  if (!route.ok()) return Refuse(name, route.status());
  const auto sent = (*left)->Send(
      *std::move(route), options_.patience, [this](bool) { return !stop_; }, &log_);
  if (!sent.ok()) {
    if (!stop_) Refuse(name, sent.status());
    return;
  }
  LogInfo("session {} is adopted: {} batches, {} payloads, {} records that had not been packed", name, sent->batches,
          sent->payloads, sent->records);
}

void Adoptions::Refuse(const std::string& name, const absl::Status& why) {
  LogWarning("session {} is not adopted, what its process left stays where it is: {}", name,
             std::string(why.message()));
  core::MutexLock lock(&mu_);
  refused_.insert(name);
}

}  // namespace msprobe::server
