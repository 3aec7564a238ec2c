#include "server/monitor/dump_room.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "server/exporter/step_parts.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

// Processes are warned at this size, or at half of the limit if that is less, and again whenever the size has doubled.
constexpr uint64_t kWarnAt = uint64_t{10} << 30;

// Says of the first link to a file that it counts.
using CountsLink = absl::FunctionRef<bool(const struct stat&)>;

uint64_t BytesOf(const fs::path& directory, CountsLink counts_link) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    struct stat found {};
    if (lstat(it->path().c_str(), &found) != 0) continue;
    if (S_ISREG(found.st_mode) && found.st_nlink > 1 && !counts_link(found)) continue;
    bytes += static_cast<uint64_t>(found.st_blocks) * 512;
  }
  return bytes;
}

uint64_t BytesOf(const fs::path& directory) {
  return BytesOf(directory, [](const struct stat&) { return true; });
}

uint64_t FreeBytes(const std::string& place) {
  struct statvfs disk {};
  return statvfs(place.c_str(), &disk) == 0 ? static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize : UINT64_MAX;
}

bool SameDisk(const std::string& a, const std::string& b) {
  struct stat of_a {
  }, of_b{};
  return stat(a.c_str(), &of_a) == 0 && stat(b.c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev;
}

std::string Shown(uint64_t bytes) {
  return bytes < uint64_t{10} << 30 ? Cat(bytes >> 20, " MiB") : Cat(bytes >> 30, " GiB");
}

}  // namespace

DumpRoom::DumpRoom(Options options) : options_(std::move(options)) {}

void DumpRoom::Start(const Sessions* sessions) {
  thread_ = std::thread([this, sessions] { Loop(*sessions); });
}

void DumpRoom::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void DumpRoom::Loop(const Sessions& sessions) {
  while (true) {
    Look(absl::Now());
    if (version_ > 0) Tell(sessions);
    absl::MutexLock lock(&mu_);
    auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; };
    if (mu_.AwaitWithTimeout(absl::Condition(&wanted), options_.period)) return;
  }
}

void DumpRoom::FindDisks() {
  const std::string spool = Cat(options_.dump_path, "/.msprobe/spool");
  disks_.push_back({.place = options_.dump_path, .directories = {spool}, .has_steps = true});
  if (SameDisk(options_.dump_path, options_.data_directory)) {
    disks_.front().directories.push_back(options_.data_directory);
  } else {
    disks_.push_back({.place = options_.data_directory, .directories = {options_.data_directory}});
  }
  for (Disk& disk : disks_) {
    uint64_t held = disk.has_steps ? step_bytes_.load() : 0;
    for (const std::string& directory : disk.directories) held += BytesOf(directory);
    const uint64_t free = FreeBytes(disk.place);
    disk.limit = free == UINT64_MAX ? UINT64_MAX / 2 : held + free / 2;
    disk.kept_free = free == UINT64_MAX ? 0 : free / 10;
  }
}

void DumpRoom::CountSteps() {
  uint64_t bytes = 0, steps = 0;
  std::set<std::pair<dev_t, ino_t>> counted;
  const auto is_first = [&](const struct stat& file) { return counted.emplace(file.st_dev, file.st_ino).second; };
  std::error_code error;
  for (const std::string_view folder : kPartFolders) {
    const std::string directory = Cat(options_.dump_path, "/", folder);
    for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
      if (!absl::StartsWith(it->path().filename().string(), "step")) continue;
      bytes += BytesOf(it->path(), is_first);
      steps +=
          static_cast<uint64_t>(std::distance(fs::directory_iterator(it->path(), error), fs::directory_iterator()));
    }
    error.clear();
  }
  step_bytes_ = bytes;
  steps_ = steps;
}

void DumpRoom::NoteExported(const std::vector<std::string>& directories) {
  --waiting_;
  if (directories.empty()) return;
  uint64_t bytes = 0;
  // A link is to a file of an earlier step, which counts there.
  for (const std::string& directory : directories) {
    bytes += BytesOf(directory, [](const struct stat&) { return false; });
  }
  step_bytes_ += bytes;
  ++steps_;
  measured_bytes_ += bytes;
  ++measured_steps_;
}

uint64_t DumpRoom::Awaited() const {
  const uint64_t steps = measured_steps_;
  return steps == 0 ? 0 : measured_bytes_ / steps * waiting_;
}

absl::Status DumpRoom::Admit() const {
  if (!refusing_) return absl::OkStatus();
  const v1::DumpRoom state = this->state();
  return absl::ResourceExhaustedError(Cat("the dump has ", Shown(state.bytes()), " and may have ",
                                          Shown(state.limit_bytes()), " (dump_quota_mb); its disk has ",
                                          Shown(state.free_bytes()), " free, ", Shown(state.kept_free_bytes()),
                                          " are kept free"));
}

v1::DumpRoom DumpRoom::state() const {
  absl::MutexLock lock(&mu_);
  return state_;
}

void DumpRoom::Look(absl::Time now) {
  const v1::DumpRoom before = state();
  // There may be many steps, so they are counted only at first, and while the room is full and somebody may delete
  // some.
  if (disks_.empty() || (before.full() && now - counted_ >= options_.recount)) {
    CountSteps();
    counted_ = now;
  }
  if (disks_.empty()) FindDisks();
  v1::DumpRoom state;
  state.set_by_quota(options_.quota_bytes > 0);
  state.set_steps(steps_);
  double fullest = 0;
  uint64_t all = 0;
  bool little_is_left = false;
  for (const Disk& disk : disks_) {
    uint64_t bytes = disk.has_steps ? step_bytes_ + Awaited() : 0;
    for (const std::string& directory : disk.directories) bytes += BytesOf(directory);
    all += bytes;
    const uint64_t free = FreeBytes(disk.place);
    const bool low = !state.by_quota() && free < disk.kept_free;
    const double share = static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(disk.limit, 1));
    if (&disk != &disks_.front() && share <= fullest && !low) continue;
    fullest = share;
    little_is_left |= low;
    state.set_bytes(bytes);
    state.set_limit_bytes(disk.limit);
    state.set_free_bytes(free);
    state.set_kept_free_bytes(disk.kept_free);
  }
  if (state.by_quota()) {
    state.set_bytes(all);
    state.set_limit_bytes(options_.quota_bytes);
    state.clear_kept_free_bytes();
  }
  const uint64_t limit = state.limit_bytes();
  const bool was_full = before.full();
  state.set_full(little_is_left || state.bytes() >= (was_full ? limit - limit / 20 : limit));
  refusing_ = little_is_left || state.bytes() >= limit + limit / 4;
  if (state.full() != was_full) {
    ++version_;
    LogInfo("the dump has {} in {} steps and may have {}: {}", Shown(state.bytes()), state.steps(), Shown(limit),
            state.full() ? "capturing pauses" : "capturing goes on");
  } else if (const uint64_t mark = std::min(kWarnAt, limit / 2); state.bytes() >= std::max(mark, 2 * warned_bytes_)) {
    warned_bytes_ = state.bytes();
    ++version_;
  }
  {
    absl::MutexLock lock(&mu_);
    state_ = state;
  }
}

void DumpRoom::Tell(const Sessions& sessions) {
  std::map<std::string, uint64_t> told;
  const v1::DumpRoom state = this->state();
  for (const std::shared_ptr<LiveSession>& session : sessions.Connected()) {
    const std::string id = session->row().session();
    const auto known = told_.find(id);
    if (known == told_.end() || known->second != version_) session->Tell(state);
    told[id] = version_;
  }
  told_ = std::move(told);
}

}  // namespace msprobe::server
