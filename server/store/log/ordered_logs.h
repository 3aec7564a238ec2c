#pragma once

#include <rocksdb/file_system.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace msprobe::server {

// Under RocksDB: a log begins only where every earlier one is on the disk, whole.
//
// RocksDB begins a log where a memtable is full, and syncs the one before later (DBImpl::SwitchMemtable). After a power
// failure in between, the new log may be there and the end of the old one not, since a system writes back what is not
// synced in any order; recovery then goes on behind the hole, with a watermark that knows nothing of it.
// Threads: every method from any thread.
class OrderedLogs : public rocksdb::FileSystemWrapper {
 public:
  // `on_lost`: called with the log's path where its sync failed; the new log is not made, then.
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
