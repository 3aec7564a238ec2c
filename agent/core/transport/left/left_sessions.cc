#include "agent/core/transport/left/left_sessions.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "agent/core/background_thread.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

// How often a thread that waits looks whether it is to stop.
constexpr absl::Duration kPause = absl::Milliseconds(100);
// Without progress, before the next session has its turn.
constexpr absl::Duration kPatience = absl::Seconds(10);
// How long the end of a process waits for a server that may not be there.
constexpr absl::Duration kToConnect = absl::Seconds(2);

}  // namespace

LeftSessions::LeftSessions(std::string directory, std::string server_binary, MakeRoute own_route, const Log* log)
    : directory_(std::move(directory)),
      server_binary_(std::move(server_binary)),
      own_route_(std::move(own_route)),
      log_(log) {}

void LeftSessions::Start(const std::string& own) {
  std::vector<std::string> names = LeftSession::Names(directory_);
  std::erase(names, own);
  if (names.empty()) return;
  try {
    thread_ = StartBackgroundThread("msprobe-left", [this, own] { Run(own); });
  } catch (const std::system_error& error) {
    log_->Warning(Cat("msprobe: what is left in ", directory_, " is not sent: ", error.what()));
  }
}

bool LeftSessions::Await(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  connected_by_ = std::min(connected_by_, absl::Now() + kToConnect);
  const auto over = [this] { return !thread_.joinable() || done_ || (!connected_ && absl::Now() >= connected_by_); };
  while (!over() && absl::Now() < deadline) absl::SleepFor(std::min(kPause, deadline - absl::Now()));
  return over();
}

void LeftSessions::Stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  thread_.join();
}

void LeftSessions::Run(const std::string& own) {
  std::vector<std::string> names = LeftSession::Names(directory_);
  std::erase(names, own);
  for (bool first = true; !stop_ && !names.empty(); first = false) {
    std::erase_if(names, [&](const std::string& name) { return stop_ || !Try(name, first); });
  }
  done_ = true;
}

bool LeftSessions::Try(const std::string& name, bool first) {
  absl::StatusOr<std::unique_ptr<LeftSession>> left = LeftSession::TakeOver(directory_, name);
  absl::Status status = left.status();
  // Its process lives, or somebody else sends it.
  if (absl::IsUnavailable(status) || absl::IsNotFound(status)) return false;
  if (status.ok()) {
    const absl::StatusOr<Route> route = RouteOfSession(**left);
    status = route.status();
    if (route.ok()) {
      const v1::Hello& hello = (*left)->origin().hello();
      if (first) {
        log_->Info(Cat("msprobe: sending what process ", hello.process_id(), " of run ", hello.run(), " left in ",
                       directory_, ": ", (*left)->bytes(), " bytes"));
      }
      const auto go_on = [this](bool connected) {
        connected_ = connected;
        return !stop_;
      };
      // What cannot be reached is said once.
      status = (*left)->Send(*route, kPatience, go_on, first ? log_ : &quiet_).status();
      connected_ = false;
    }
  }
  if (absl::IsUnavailable(status)) return true;
  if (!status.ok()) log_->Warning(Cat("msprobe: what an earlier process left is not sent: ", status.message()));
  return false;
}

absl::StatusOr<Route> LeftSessions::RouteOfSession(const LeftSession& left) const {
  if (left.origin().spool_directory().empty()) return own_route_();
  return RouteOf(left.origin(), left.server(), server_binary_);
}

}  // namespace msprobe::core
