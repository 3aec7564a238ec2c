#include "server/app/store_meters.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/time/time.h"

namespace msprobe::server {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

void StoreMeters::Publish() {
  absl::MutexLock lock(&mu_);
  metrics_->Set(Metric::kDiskFreeBytes, static_cast<double>(database_->free_bytes()));
  metrics_->Set(Metric::kStoreRefusing, database_->Writable().ok() ? 0 : 1);
  PublishTiler();
  PublishStore();
  PublishProcess();
}

void StoreMeters::PublishTiler() {
  const Tiler::Counters now = tiler_->counters();
  const Tiler::Counters& before = published_tiler_;
  const auto add = [&](Metric metric, uint64_t value, uint64_t last, std::initializer_list<std::string> labels = {}) {
    if (value > last) metrics_->Add(metric, static_cast<double>(value - last), labels);
  };
  add(Metric::kTileSets, now.sets, before.sets);
  add(Metric::kTiledPasses, now.passes, before.passes);
  add(Metric::kTilingBytes, now.row_bytes, before.row_bytes, {"rows"});
  add(Metric::kTilingBytes, now.tile_bytes, before.tile_bytes, {"tiles"});
  add(Metric::kTilingFailures, now.failures, before.failures);
  metrics_->Add(Metric::kTilingSeconds, absl::ToDoubleSeconds(now.busy - before.busy));
  metrics_->Set(Metric::kStepsWaiting, static_cast<double>(now.waiting));
  published_tiler_ = now;
}

void StoreMeters::PublishStore() {
  const Database::Meters now = database_->meters();
  metrics_->Add(Metric::kSyncs, static_cast<double>(now.syncs - published_store_.syncs));
  metrics_->Add(Metric::kSyncSeconds, absl::ToDoubleSeconds(now.sync_time - published_store_.sync_time));
  metrics_->Set(Metric::kSyncsWaiting, static_cast<double>(now.syncs_waiting));
  metrics_->Set(Metric::kSyncLag, absl::ToDoubleSeconds(now.sync_lag));
  metrics_->Add(Metric::kWrittenBytes, static_cast<double>(now.written_bytes - published_store_.written_bytes));
  metrics_->Add(Metric::kWriteSeconds, absl::ToDoubleSeconds(now.write_time - published_store_.write_time));
  metrics_->Set(Metric::kWriteStall, now.write_stall);
  metrics_->Set(Metric::kCompactionBytes, static_cast<double>(now.pending_compaction_bytes));
  metrics_->Set(Metric::kWriteBufferBytes, static_cast<double>(database_->write_buffer_usage()));
  metrics_->Set(Metric::kBlockCacheBytes, static_cast<double>(now.block_cache_bytes));
  for (const auto& [family, name] : {std::pair(Family::kMeta, "meta"), std::pair(Family::kRows, "rows"),
                                     std::pair(Family::kTiles, "tiles"), std::pair(Family::kPayloads, "payloads")}) {
    metrics_->Set(Metric::kStoreBytes, static_cast<double>(database_->FileBytes(family)), {name});
  }
  published_store_ = now;
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
