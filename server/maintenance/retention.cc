#include "server/maintenance/retention.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

// Restarted uploads and crashes leave little unused space in segments, and the search for it reads every extent.
constexpr absl::Duration kCollectEvery = absl::Hours(1);

}  // namespace

std::vector<std::string> RunsToRemove(std::vector<KeptRun> runs, const RetentionOptions& options, absl::Time now) {
  std::sort(runs.begin(), runs.end(), [](const KeptRun& a, const KeptRun& b) {
    return std::pair(a.begun, a.number) < std::pair(b.begun, b.number);
  });
  uint64_t bytes = 0, count = runs.size();
  for (const KeptRun& run : runs) bytes += run.bytes;
  std::vector<std::string> remove;
  for (const KeptRun& run : runs) {
    const bool beyond = now - run.begun > options.age || (options.bytes > 0 && bytes > options.bytes) ||
                        (options.runs > 0 && count > options.runs);
    if (!beyond || run.open || run.pinned) continue;
    remove.push_back(run.name);
    bytes -= run.bytes;
    --count;
  }
  return remove;
}

Retention::Retention(Store* store, Metrics* metrics, RetentionOptions options)
    : store_(store), metrics_(metrics), options_(options) {}

Retention::~Retention() { Stop(); }

void Retention::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Retention::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status Retention::Admit(uint32_t run) const {
  absl::MutexLock lock(&mu_);
  if (options_.run_quota == 0) return absl::OkStatus();
  auto found = beyond_quota_.find(run);
  if (found == beyond_quota_.end()) return absl::OkStatus();
  return absl::ResourceExhaustedError(Cat("the run has ", found->second >> 20, " MiB, its quota is ",
                                          options_.run_quota >> 20, " MiB (--run_quota_mib)"));
}

void Retention::SetLimits(const RetentionOptions& limits) {
  absl::MutexLock lock(&mu_);
  const absl::Duration period = options_.period;
  options_ = limits;
  options_.period = period;
  if (options_.run_quota == 0) beyond_quota_.clear();
}

RetentionOptions Retention::options() const {
  absl::MutexLock lock(&mu_);
  return options_;
}

absl::StatusOr<std::vector<KeptRun>> Retention::Runs() const {
  auto rows = store_->catalogue().Runs();
  if (!rows.ok()) return rows.status();
  auto sessions = store_->catalogue().Sessions();
  if (!sessions.ok()) return sessions.status();
  const absl::Time now = store_->Now();
  std::vector<KeptRun> runs;
  for (const storage::RunRow& row : *rows) {
    KeptRun& run = runs.emplace_back();
    run.name = row.name();
    run.number = row.number();
    run.pinned = row.pinned();
    run.begun = absl::FromUnixMicros(row.created_unix_us());
    for (const storage::SessionRow& session : *sessions) {
      if (session.run() != row.number()) continue;
      run.open |= session.state() == storage::SessionRow::OPEN;
      const absl::Time opened = absl::FromUnixMicros(OpenedUnixUs(session));
      // For a session that an earlier version stored only the agent's clock is known, which may be ahead.
      if (opened <= now) run.begun = std::max(run.begun, opened);
    }
    auto steps = store_->steps().Of(row.number());
    if (!steps.ok()) return steps.status();
    for (const Steps::Step& step : *steps) run.bytes += step.second.row_bytes();
    auto payloads = store_->payloads().ReferencedBytes(row.number());
    if (!payloads.ok()) return payloads.status();
    run.bytes += *payloads;
  }
  return runs;
}

absl::Status Retention::Look() {
  const RetentionOptions options = this->options();
  const bool limits = options.age < absl::InfiniteDuration() || options.bytes > 0 || options.runs > 0;
  if (limits || options.run_quota > 0) {
    auto runs = Runs();
    if (!runs.ok()) return runs.status();
    {
      absl::MutexLock lock(&mu_);
      beyond_quota_.clear();
      for (const KeptRun& run : *runs) {
        if (options.run_quota > 0 && run.bytes >= options.run_quota) beyond_quota_[run.number] = run.bytes;
      }
    }
    for (const std::string& name : RunsToRemove(*std::move(runs), options, store_->Now())) {
      auto deleted = store_->maintenance().DeleteRun(name);
      if (absl::IsFailedPrecondition(deleted.status())) continue;  // a session opened meanwhile
      if (!deleted.ok()) return deleted.status();
      metrics_->Add(Metric::kRunsRemoved, 1);
      LogInfo("run {} is removed by retention: {} bytes of rows, {} bytes of payloads", name, deleted->row_bytes,
              deleted->payload_bytes);
    }
  }
  const uint64_t deleted = store_->maintenance().runs_deleted();
  const bool reclaim = deleted != reclaimed_;
  const uint64_t released = store_->maintenance().bytes_released();
  const bool collect = store_->Now() - collected_ >= kCollectEvery || released - released_ >= kCollectReleased;
  if (!reclaim && !collect) return absl::OkStatus();
  absl::Status status = reclaim ? store_->maintenance().ReclaimSpace() : store_->maintenance().CollectSegments();
  if (!status.ok()) return status;
  reclaimed_ = deleted;
  released_ = released;
  collected_ = store_->Now();
  return absl::OkStatus();
}

void Retention::Loop() {
  const absl::Duration period = options().period;
  absl::Time next = absl::Now() + period;
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; };
      if (mu_.AwaitWithDeadline(absl::Condition(&wanted), next)) return;
    }
    if (absl::Status status = Look(); !status.ok()) LogError("retention: {}", status.ToString());
    next = absl::Now() + period;
  }
}

}  // namespace msprobe::server
