#include "server/store/log/ordered_logs.h"

#include <atomic>
#include <utility>

namespace msprobe::server {

using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class OrderedLogs::Log {
 public:
  Log(std::string path, std::unique_ptr<FSWritableFile> file) : path_(std::move(path)), file_(std::move(file)) {}
  FSWritableFile* file() { return file_.get(); }
  const std::string& path() const { return path_; }

  bool unsynced() const { return unsynced_; }

  IOStatus Appended(IOStatus status) {
    unsynced_ = true;
    return status;
  }
  // One at a time, and none succeeds after one failed: a system tells of what it lost only once.
  template <typename SyncFile>
  IOStatus Sync(SyncFile sync) {
    absl::MutexLock lock(&mu_);
    if (!lost_.ok()) return lost_;
    unsynced_ = false;  // before: what is appended meanwhile may miss this sync
    IOStatus status = sync(*file_);
    if (!status.ok()) {
      unsynced_ = true;
      lost_ = status;
    }
    return status;
  }

 private:
  const std::string path_;
  const std::unique_ptr<FSWritableFile> file_;
  std::atomic<bool> unsynced_ = false;
  absl::Mutex mu_;
  IOStatus lost_ ABSL_GUARDED_BY(mu_);
};

class OrderedLogs::OpenLog : public rocksdb::FSWritableFileWrapper {
 public:
  explicit OpenLog(std::shared_ptr<Log> log) : rocksdb::FSWritableFileWrapper(log->file()), log_(std::move(log)) {}
  IOStatus Append(const rocksdb::Slice& bytes, const IOOptions& options, IODebugContext* debug) override {
    return log_->Appended(log_->file()->Append(bytes, options, debug));
  }
  IOStatus Append(const rocksdb::Slice& bytes, const IOOptions& options, const rocksdb::DataVerificationInfo& checksum,
                  IODebugContext* debug) override {
    return log_->Appended(log_->file()->Append(bytes, options, checksum, debug));
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return log_->Sync([&](FSWritableFile& file) { return file.Sync(options, debug); });
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return log_->Sync([&](FSWritableFile& file) { return file.Fsync(options, debug); });
  }

 private:
  const std::shared_ptr<Log> log_;
};

IOStatus OrderedLogs::NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                      std::unique_ptr<FSWritableFile>* result, IODebugContext* debug) {
  if (!path.ends_with(".log")) return FileSystemWrapper::NewWritableFile(path, options, result, debug);
  absl::MutexLock lock(&mu_);
  std::erase_if(logs_, [](const std::weak_ptr<Log>& log) { return log.expired(); });
  for (const std::weak_ptr<Log>& each : logs_) {
    const std::shared_ptr<Log> log = each.lock();
    if (log == nullptr || !log->unsynced()) continue;
    IOStatus status = log->Sync([&](FSWritableFile& file) { return file.Sync(IOOptions(), debug); });
    if (status.ok()) continue;
    on_lost_(log->path(), status);
    // As final as any other failed sync, be it that the disk is full.
    return IOStatus::IOError("cannot sync " + log->path() + " before " + path, status.ToString());
  }
  std::unique_ptr<FSWritableFile> file;
  IOStatus status = FileSystemWrapper::NewWritableFile(path, options, &file, debug);
  if (!status.ok()) return status;
  auto log = std::make_shared<Log>(path, std::move(file));
  logs_.push_back(log);
  *result = std::make_unique<OpenLog>(std::move(log));
  return status;
}

}  // namespace msprobe::server
