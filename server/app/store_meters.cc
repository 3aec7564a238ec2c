#include "server/app/store_meters.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/time/clock.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

void StoreMeters::Publish() {
  const absl::Time at = absl::Now();
  if (at < next_) return;
  next_ = at + kPeriod;
  const Database::Meters now = database_->meters();
  metrics_->Add(Metric::kSyncs, static_cast<double>(now.syncs - published_.syncs));
  metrics_->Add(Metric::kSyncSeconds, absl::ToDoubleSeconds(now.sync_time - published_.sync_time));
  metrics_->Set(Metric::kSyncsWaiting, static_cast<double>(now.syncs_waiting));
  metrics_->Set(Metric::kSyncLag, absl::ToDoubleSeconds(now.sync_lag));
  metrics_->Add(Metric::kWrittenBytes, static_cast<double>(now.written_bytes - published_.written_bytes));
  metrics_->Add(Metric::kWriteSeconds, absl::ToDoubleSeconds(now.write_time - published_.write_time));
  metrics_->Set(Metric::kWriteStall, now.write_stall);
  metrics_->Set(Metric::kCompactionBytes, static_cast<double>(now.pending_compaction_bytes));
  metrics_->Set(Metric::kBlockCacheBytes, static_cast<double>(now.block_cache_bytes));
  for (const auto& [family, name] : {std::pair(Family::kMeta, "meta"), std::pair(Family::kRows, "rows"),
                                     std::pair(Family::kTiles, "tiles"), std::pair(Family::kPayloads, "payloads")}) {
    metrics_->Set(Metric::kStoreBytes, static_cast<double>(database_->FileBytes(family)), {name});
  }
  published_ = now;
  PublishProcess();
}

void StoreMeters::PublishProcess() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double cpu = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  metrics_->Add(Metric::kProcessCpu, std::max(0.0, cpu - cpu_seconds_));
  cpu_seconds_ = cpu;
  uint64_t pages = 0, resident = 0;
  if (std::ifstream("/proc/self/statm") >> pages >> resident) {
    metrics_->Set(Metric::kProcessBytes, static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  if (!error) metrics_->Set(Metric::kProcessOpenFiles, static_cast<double>(std::distance(begin(open), end(open)) - 1));
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    metrics_->Set(Metric::kProcessMaxFiles, static_cast<double>(files.rlim_cur));
  }
}

}  // namespace msprobe::server
