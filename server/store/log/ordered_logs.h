#pragma once

#include <rocksdb/file_system.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace msprobe::server {

// A file system under RocksDB that begins a log only when every earlier log is whole on the disk.
//
// When a memtable is full RocksDB begins a new log, and syncs the old one later (DBImpl::SwitchMemtable). A system
// writes unsynced bytes back in any order, so a power failure in between may keep the new log and lose the end of the
// old one. Recovery would then go on behind the hole, with a watermark that knows nothing of it. Threads: every method
// from any thread.
class OrderedLogs : public rocksdb::FileSystemWrapper {
 public:
  // `on_lost` is called with the path of a log whose sync failed. The new log is then not made.
  OrderedLogs(const std::shared_ptr<rocksdb::FileSystem>& base,
              std::function<void(const std::string& log, const rocksdb::IOStatus&)> on_lost)
      : rocksdb::FileSystemWrapper(base), on_lost_(std::move(on_lost)) {}
  const char* Name() const override { return "OrderedLogs"; }

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* debug) override;

 private:
  class Log;
  class OpenLog;

  const std::function<void(const std::string&, const rocksdb::IOStatus&)> on_lost_;
  absl::Mutex mu_;
  std::vector<std::weak_ptr<Log>> logs_ ABSL_GUARDED_BY(mu_);  // those that RocksDB still has open, and some that went
};

}  // namespace msprobe::server
