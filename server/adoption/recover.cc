#include "server/adoption/recover.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/core/config/config.h"
#include "agent/core/config/server_address.h"
#include "agent/core/payload/session_place.h"
#include "agent/core/transport/left/left_session.h"
#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

// How long, for all sessions together, sessions of ended processes may still be in use: a server is adopting them, or
// a killed process is not quite gone. On a busy machine a process's last thread ends a while after its first.
constexpr absl::Duration kInOtherHands = absl::Seconds(10);

struct Place {
  std::string directory;
  std::vector<std::string> names;
};

absl::StatusOr<Place> Find(const std::string& path) {
  std::error_code error;
  const fs::path given = fs::absolute(path, error).lexically_normal();
  if (!fs::exists(given, error)) return absl::NotFoundError(Cat(path, ": there is no such file or directory"));
  if (!fs::is_directory(given, error)) {
    const std::string name(core::SessionOfName(given.filename().string()));
    if (name.empty()) {
      return absl::NotFoundError(
          Cat(path, ": it is no session's memory, whose name is msprobe- and 32 hexadecimal digits"));
    }
    return Place{.directory = given.parent_path(), .names = {name}};
  }
  Place place{.directory = (given / ".msprobe" / "spool").string(), .names = {}};
  if (!fs::is_directory(place.directory, error)) place.directory = given;
  place.names = core::LeftSession::Names(place.directory);
  return place;
}

std::string Shown(const core::Route& route) {
  if (route.embedded.has_value()) return Cat("the embedded server in ", route.embedded->data_directory());
  std::string shown = route.settled;
  for (const std::string& target : route.targets) {
    if (route.settled.empty()) shown += Cat(shown.empty() ? "" : ",", target);
  }
  return shown;
}

absl::StatusOr<core::Route> RouteFor(const core::LeftSession& left, const RecoverOptions& options) {
  if (options.to.empty()) return core::RouteOf(left.origin(), left.server(), options.server_binary);
  auto targets = core::ParseServerAddresses(options.to);
  if (!targets.ok()) return targets.status();
  core::Route route;
  route.targets = *std::move(targets);
  route.access = core::AccessOfEnvironment();
  if (absl::Status status = route.access.Check(route.targets); !status.ok()) return status;
  return route;
}

// Whether a process of this machine runs. A process that only waits for its last threads does not.
bool IsRunning(uint64_t process_id) {
  std::ifstream file(Cat("/proc/", process_id, "/stat"));
  std::string line;
  std::getline(file, line);
  const size_t state = line.rfind(") ");
  return state != std::string::npos && state + 2 < line.size() && line[state + 2] != 'Z' && line[state + 2] != 'X';
}

// Unavailable: the session is in use, either by its own process or, until the deadline, by others.
absl::StatusOr<std::unique_ptr<core::LeftSession>> TakeOver(const std::string& directory, const std::string& name,
                                                            absl::Time deadline) {
  auto left = core::LeftSession::TakeOver(directory, name);
  const auto origin = core::LeftSession::Origin(directory, name);
  while (origin.ok() && absl::IsUnavailable(left.status()) && !IsRunning(origin->hello().process_id()) &&
         absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
    left = core::LeftSession::TakeOver(directory, name);
  }
  return left;
}

void Describe(const core::SessionOrigin& origin, RecoveredSession& found) {
  found.run = origin.hello().run();
  found.rank = RankName(origin.hello().rank());
  found.host = origin.hello().host();
  found.process_id = origin.hello().process_id();
}

}  // namespace

absl::StatusOr<bool> Recover(const RecoverOptions& options, const std::function<void(const RecoveredSession&)>& tell) {
  if (!options.to.empty()) {
    if (auto targets = core::ParseServerAddresses(options.to); !targets.ok()) return targets.status();
  }
  auto place = Find(options.path);
  if (!place.ok()) return place.status();
  const core::Log log([](core::Log::Severity severity, std::string_view text) {
    if (severity >= core::Log::Severity::kWarning) LogWarning("{}", text);
  });
  // Take over all of them first: a server that is started for one would adopt the others.
  std::vector<std::pair<RecoveredSession, std::unique_ptr<core::LeftSession>>> taken;
  bool kept = false;
  const absl::Time deadline = absl::Now() + kInOtherHands;
  for (const std::string& name : place->names) {
    RecoveredSession found;
    found.session = name;
    auto left = TakeOver(place->directory, name, deadline);
    if (left.ok()) {
      Describe((*left)->origin(), found);
      found.bytes = (*left)->bytes();
      taken.emplace_back(std::move(found), *std::move(left));
      continue;
    }
    if (absl::IsNotFound(left.status())) continue;
    if (auto origin = core::LeftSession::Origin(place->directory, name); origin.ok()) Describe(*origin, found);
    const bool in_use = absl::IsUnavailable(left.status());
    kept |= !in_use;
    found.state = in_use ? RecoveredSession::State::kInUse : RecoveredSession::State::kKept;
    found.why = std::string(left.status().message());
    tell(found);
  }
  for (auto& [found, left] : taken) {
    auto route = RouteFor(*left, options);
    absl::Status status = route.status();
    if (status.ok()) {
      found.server = Shown(*route);
      const auto sent = left->Send(
          *std::move(route), options.patience, [](bool) { return true; }, &log);
      status = sent.status();
      if (sent.ok()) {
        found.records = sent->records;
        found.batches = sent->batches;
        found.payloads = sent->payloads;
        found.state = found.bytes > 0 ? RecoveredSession::State::kSent : RecoveredSession::State::kNothing;
      }
    }
    left.reset();
    found.why = std::string(status.message());
    kept |= !status.ok();
    tell(found);
  }
  return !kept;
}

std::string ToJson(const RecoveredSession& session) {
  static constexpr const char* kStates[] = {"sent", "nothing", "in use", "kept"};
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  const auto text = [&](const char* key, const std::string& value) {
    writer.Key(key);
    writer.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
  };
  const auto number = [&](const char* key, uint64_t value) {
    writer.Key(key);
    writer.Uint64(value);
  };
  writer.StartObject();
  text("session", session.session);
  text("run", session.run);
  text("rank", session.rank);
  number("process_id", session.process_id);
  text("host", session.host);
  text("state", kStates[static_cast<int>(session.state)]);
  number("bytes", session.bytes);
  number("records", session.records);
  number("batches", session.batches);
  number("payloads", session.payloads);
  text("server", session.server);
  text("why", session.why);
  writer.EndObject();
  return buffer.GetString();
}

}  // namespace msprobe::server
