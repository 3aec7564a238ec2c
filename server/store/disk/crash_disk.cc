#include "server/store/disk/crash_disk.h"

#include <fcntl.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace msprobe::server {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// One append in so many is followed by the writing back of some of what is not synced.
constexpr uint32_t kWriteBackOneIn = 12;

IOStatus Gone() { return IOStatus::IOError("the disk has crashed"); }
std::string DirectoryOf(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }
bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

struct OpenFile {
  std::unique_ptr<rocksdb::FSWritableFile> written;  // what a crash leaves
  std::string unsynced;
  uint64_t size = 0;
  bool is_log = false;
};

}  // namespace

class CrashDisk::FileSystem : public rocksdb::FileSystemWrapper {
 public:
  FileSystem(const std::string& directory, uint64_t seed)
      : rocksdb::FileSystemWrapper(rocksdb::FileSystem::Default()),
        entries_path_(directory + "/crash_disk_entries"),
        random_(seed) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    absl::MutexLock lock(&mu_);
    ReplayEntries();
    entries_ = open(entries_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_TRUNC | O_CLOEXEC, 0644);
  }
  ~FileSystem() override {
    absl::MutexLock lock(&mu_);
    if (!crashed_) {
      for (auto& [path, file] : files_) WriteBack(*file, file->unsynced.size());
      unlink(entries_path_.c_str());
    }
    close(entries_);
  }
  const char* Name() const override { return "CrashDisk"; }

  void Crash() {
    absl::MutexLock lock(&mu_);
    if (crashed_) return;
    for (auto& [path, file] : files_) {
      if (random_() % 2 == 0) WriteBack(*file, random_() % (file->unsynced.size() + 1));
      lost_bytes_ += file->unsynced.size();
      file->written.reset();
    }
    crashed_ = true;
    LoseEntries(unsynced_entries_);
    unlink(entries_path_.c_str());
  }
  void SetRoom(std::optional<uint64_t> bytes) {
    absl::MutexLock lock(&mu_);
    room_ = bytes;
  }
  void HoldLog(bool hold) {
    absl::MutexLock lock(&mu_);
    hold_appends_ = hold_syncs_ = hold;
  }
  void HoldLogSyncs(bool hold) {
    absl::MutexLock lock(&mu_);
    hold_syncs_ = hold;
  }
  size_t waiting() const {
    absl::MutexLock lock(&mu_);
    return waiting_;
  }
  void FailSyncs(bool fail) {
    absl::MutexLock lock(&mu_);
    fail_syncs_ = fail;
  }
  void FailSyncsAfter(uint64_t syncs) {
    absl::MutexLock lock(&mu_);
    max_syncs_ = syncs;
  }
  uint64_t lost_bytes() const {
    absl::MutexLock lock(&mu_);
    return lost_bytes_;
  }

  uint64_t syncs() const {
    absl::MutexLock lock(&mu_);
    return syncs_;
  }

  // --- of one file ----------------------------------------------------------------------------------------------
  IOStatus Append(OpenFile& file, const rocksdb::Slice& bytes) {
    absl::MutexLock lock(&mu_);
    Await(file, hold_appends_);
    if (crashed_) {
      file.size += bytes.size();
      return IOStatus::OK();
    }
    const size_t fits = room_.has_value() ? std::min<uint64_t>(*room_, bytes.size()) : bytes.size();
    file.unsynced.append(bytes.data(), fits);
    file.size += fits;
    if (room_.has_value()) *room_ -= fits;
    if (fits < bytes.size()) return IOStatus::NoSpace("no space left on the test's disk");
    if (random_() % kWriteBackOneIn == 0) return WriteBack(file, random_() % (file.unsynced.size() + 1));
    return IOStatus::OK();
  }
  IOStatus Sync(OpenFile& file) {
    absl::MutexLock lock(&mu_);
    Await(file, hold_syncs_);
    if (crashed_) return IOStatus::OK();
    if (syncs_ >= max_syncs_) fail_syncs_ = true;
    if (fail_syncs_) {
      file.unsynced.assign(file.unsynced.size(), '\0');
      return IOStatus::IOError("the test's disk fails to sync");
    }
    ++syncs_;
    return WriteBack(file, file.unsynced.size());
  }
  IOStatus Cut(OpenFile& file, uint64_t size) {
    absl::MutexLock lock(&mu_);
    if (crashed_) return Gone();
    if (IOStatus status = WriteBack(file, file.unsynced.size()); !status.ok()) return status;
    file.size = size;
    return file.written->Truncate(size, IOOptions(), nullptr);
  }
  uint64_t SizeOf(const OpenFile& file) const {
    absl::MutexLock lock(&mu_);
    return file.size;
  }

  // --- FileSystem -----------------------------------------------------------------------------------------------
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) override {
    return Make(path, result, [&](std::unique_ptr<rocksdb::FSWritableFile>* base) {
      return target()->NewWritableFile(path, Plain(options), base, debug);
    });
  }
  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) override {
    return Make(path, result, [&](std::unique_ptr<rocksdb::FSWritableFile>* base) {
      return target()->ReopenWritableFile(path, Plain(options), base, debug);
    });
  }
  IOStatus ReuseWritableFile(const std::string&, const std::string&, const FileOptions&,
                             std::unique_ptr<rocksdb::FSWritableFile>*, IODebugContext*) override {
    return IOStatus::NotSupported("reuse of a file");
  }
  IOStatus NewDirectory(const std::string& name, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext* debug) override;
  // Whoever reads sees everything: it is written back, as it may be at any time.
  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result, IODebugContext* debug) override {
    WriteBackAll(path);
    return target()->NewSequentialFile(path, options, result, debug);
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result, IODebugContext* debug) override {
    WriteBackAll(path);
    return target()->NewRandomAccessFile(path, options, result, debug);
  }
  IOStatus GetFileSize(const std::string& path, const IOOptions& options, uint64_t* size,
                       IODebugContext* debug) override {
    WriteBackAll(path);
    return target()->GetFileSize(path, options, size, debug);
  }
  IOStatus GetFreeSpace(const std::string& path, const IOOptions& options, uint64_t* bytes,
                        IODebugContext* debug) override {
    {
      absl::MutexLock lock(&mu_);
      if (room_.has_value()) {
        *bytes = *room_;
        return IOStatus::OK();
      }
    }
    return target()->GetFreeSpace(path, options, bytes, debug);
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions& options,
                    IODebugContext* debug) override {
    WriteBackAll(from);
    return target()->LinkFile(from, to, options, debug);
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* debug) override {
    absl::MutexLock lock(&mu_);
    if (crashed_) return Gone();
    const bool unsynced = IsUnsynced(from);
    ForgetEntriesOf(DirectoryOf(to));
    if (!Exists(to) && unsynced) NoteEntry(to);
    IOStatus status = target()->RenameFile(from, to, options, debug);
    if (!status.ok()) return status;
    ForgetEntry(from);
    files_.erase(to);
    if (auto moved = files_.extract(from); !moved.empty()) {
      moved.key() = to;
      files_.insert(std::move(moved));
    }
    return status;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options, IODebugContext* debug) override {
    absl::MutexLock lock(&mu_);
    if (crashed_) return Gone();
    files_.erase(path);
    ForgetEntry(path);
    return target()->DeleteFile(path, options, debug);
  }

  IOStatus SyncDirectory(const std::string& name) {
    absl::MutexLock lock(&mu_);
    if (crashed_) return Gone();
    if (fail_syncs_) return IOStatus::IOError("the test's disk fails to sync");
    ForgetEntriesOf(name);
    return IOStatus::OK();
  }

 private:
  static FileOptions Plain(FileOptions options) {
    options.use_mmap_writes = false;
    options.use_direct_writes = false;
    return options;
  }

  template <typename MakeBase>
  IOStatus Make(const std::string& path, std::unique_ptr<rocksdb::FSWritableFile>* result, MakeBase make_base);

  void Await(const OpenFile& file, const bool& held) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!file.is_log) return;
    const auto free = [&held] { return !held; };
    ++waiting_;
    mu_.Await(absl::Condition(&free));
    --waiting_;
  }
  IOStatus WriteBack(OpenFile& file, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (bytes == 0 || file.written == nullptr) return IOStatus::OK();
    IOStatus status = file.written->Append(rocksdb::Slice(file.unsynced.data(), bytes), IOOptions(), nullptr);
    if (status.ok()) status = file.written->Flush(IOOptions(), nullptr);
    if (status.ok()) file.unsynced.erase(0, bytes);
    return status;
  }
  void WriteBackAll(const std::string& path) {
    absl::MutexLock lock(&mu_);
    auto found = files_.find(path);
    if (!crashed_ && found != files_.end()) WriteBack(*found->second, found->second->unsynced.size());
  }

  bool IsUnsynced(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return std::find(unsynced_entries_.begin(), unsynced_entries_.end(), path) != unsynced_entries_.end();
  }
  // The list outlives a kill -9: a line for each new file, and one when its directory was synced or it went.
  void NoteEntry(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (IsUnsynced(path)) return;
    unsynced_entries_.push_back(path);
    Say('+', path);
  }
  void ForgetEntriesOf(const std::string& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::vector<std::string> entries = unsynced_entries_;
    for (const std::string& path : entries) {
      if (DirectoryOf(path) == directory) ForgetEntry(path);
    }
  }
  void ForgetEntry(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (std::erase(unsynced_entries_, path) > 0) Say('-', path);
  }
  void Say(char sign, const std::string& path) {
    const std::string line = sign + path + "\n";
    if (write(entries_, line.data(), line.size()) < 0) return;
  }
  void ReplayEntries() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::ifstream list(entries_path_);
    std::vector<std::string> unsynced;
    for (std::string line; std::getline(list, line);) {
      if (line[0] == '+') unsynced.push_back(line.substr(1));
      if (line[0] == '-') std::erase(unsynced, line.substr(1));
    }
    LoseEntries(unsynced);
  }
  void LoseEntries(const std::vector<std::string>& unsynced) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (size_t kept = random_() % (unsynced.size() + 1); kept < unsynced.size(); ++kept) {
      unlink(unsynced[kept].c_str());
    }
  }

  const std::string entries_path_;
  int entries_ = -1;
  mutable absl::Mutex mu_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<OpenFile>> files_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> unsynced_entries_ ABSL_GUARDED_BY(mu_);  // in the order in which they were made
  std::optional<uint64_t> room_ ABSL_GUARDED_BY(mu_);
  bool hold_appends_ ABSL_GUARDED_BY(mu_) = false;  // to the log
  bool hold_syncs_ ABSL_GUARDED_BY(mu_) = false;    // of the log
  size_t waiting_ ABSL_GUARDED_BY(mu_) = 0;
  bool fail_syncs_ ABSL_GUARDED_BY(mu_) = false;
  bool crashed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t lost_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t syncs_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t max_syncs_ ABSL_GUARDED_BY(mu_) = UINT64_MAX;
};

namespace {

template <typename FileSystem>
class CrashFile : public rocksdb::FSWritableFile {
 public:
  CrashFile(FileSystem* files, std::shared_ptr<OpenFile> file) : files_(files), file_(std::move(file)) {}
  using rocksdb::FSWritableFile::Append;
  IOStatus Append(const rocksdb::Slice& bytes, const IOOptions&, IODebugContext*) override {
    return files_->Append(*file_, bytes);
  }
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override { return files_->Cut(*file_, size); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return files_->Sync(*file_); }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return files_->SizeOf(*file_); }

 private:
  FileSystem* const files_;
  const std::shared_ptr<OpenFile> file_;
};

template <typename FileSystem>
class CrashDirectory : public rocksdb::FSDirectory {
 public:
  CrashDirectory(FileSystem* files, std::string name) : files_(files), name_(std::move(name)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return files_->SyncDirectory(name_); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  FileSystem* const files_;
  const std::string name_;
};

}  // namespace

template <typename MakeBase>
IOStatus CrashDisk::FileSystem::Make(const std::string& path, std::unique_ptr<rocksdb::FSWritableFile>* result,
                                     MakeBase make_base) {
  absl::MutexLock lock(&mu_);
  if (crashed_) return Gone();
  if (room_ == uint64_t{0}) return IOStatus::NoSpace("no space left on the test's disk");
  if (!Exists(path)) NoteEntry(path);
  auto file = std::make_shared<OpenFile>();
  file->is_log = path.ends_with(".log");
  IOStatus status = make_base(&file->written);
  if (!status.ok()) return status;
  file->size = file->written->GetFileSize(IOOptions(), nullptr);
  files_[path] = file;
  *result = std::make_unique<CrashFile<FileSystem>>(this, std::move(file));
  return status;
}

IOStatus CrashDisk::FileSystem::NewDirectory(const std::string& name, const IOOptions&,
                                             std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext*) {
  *result = std::make_unique<CrashDirectory<FileSystem>>(this, name);
  return IOStatus::OK();
}

CrashDisk::CrashDisk(const std::string& directory, uint64_t seed)
    : files_(std::make_shared<FileSystem>(directory, seed)), env_(rocksdb::NewCompositeEnv(files_)) {}

CrashDisk::~CrashDisk() = default;
rocksdb::Env* CrashDisk::env() const { return env_.get(); }
void CrashDisk::Crash() { files_->Crash(); }
void CrashDisk::SetRoom(std::optional<uint64_t> bytes) { files_->SetRoom(bytes); }
void CrashDisk::HoldLog(bool hold) { files_->HoldLog(hold); }
void CrashDisk::HoldLogSyncs(bool hold) { files_->HoldLogSyncs(hold); }
size_t CrashDisk::waiting() const { return files_->waiting(); }
void CrashDisk::FailSyncs(bool fail) { files_->FailSyncs(fail); }

void CrashDisk::FailSyncsAfter(uint64_t syncs) { files_->FailSyncsAfter(syncs); }
uint64_t CrashDisk::lost_bytes() const { return files_->lost_bytes(); }
uint64_t CrashDisk::syncs() const { return files_->syncs(); }

}  // namespace msprobe::server
