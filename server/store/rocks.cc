#include "server/store/rocks.h"

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/table.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/store/log/crc32c.h"
#include "server/store/log/ordered_logs.h"

namespace msprobe::server {
namespace {

constexpr size_t kSmallMemtable = size_t{4} << 20;
// Values of this size and more live in blob files: payload chunks that are not in segments, but not small ones.
constexpr uint64_t kMinBlobBytes = 4096;
// Read again at the start after a crash: at about 200 MB/s.
constexpr uint64_t kMaxWalBytes = uint64_t{96} << 20;

rocksdb::ColumnFamilyOptions FamilyOptions(Family family, const StoreOptions& options,
                                           const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.cache_index_and_filter_blocks = true;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  // In parts: the whole filter of a large file is larger than a shard of the cache, and each Get would read it again.
  table.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
  table.partition_filters = true;
  table.block_size = 16 << 10;
  // Newer versions of RocksDB write another one, and Debian 12's could not read what they wrote.
  table.format_version = 5;
  rocksdb::ColumnFamilyOptions result;
  result.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  result.compression = rocksdb::kLZ4Compression;
  result.write_buffer_size = kSmallMemtable;
  if (family == Family::kRows) result.write_buffer_size = options.memtable_bytes;
  // Numbers of tensors: LZ4 finds nothing in them.
  if (family == Family::kTiles) result.compression = rocksdb::kNoCompression;
  if (family == Family::kPayloads) {
    result.write_buffer_size = options.memtable_bytes;
    result.enable_blob_files = true;
    result.min_blob_size = kMinBlobBytes;
    result.enable_blob_garbage_collection = true;
    result.blob_compression_type = rocksdb::kNoCompression;
    // Each compaction also copies the oldest quarter of the blobs: rarely, then.
    result.level0_file_num_compaction_trigger = 16;
    result.level0_slowdown_writes_trigger = 32;
    result.level0_stop_writes_trigger = 48;
  }
  return result;
}

// Of a log, or of the segments: a failed sync, from whichever thread.
using OnLost = std::function<void(const std::string& log, const absl::Status& status)>;

// Hears of what goes wrong in RocksDB's own threads, and in writes and syncs; keeps tables from being ahead of
// segments.
class Listener : public rocksdb::EventListener {
 public:
  Listener(std::shared_ptr<DiskState> disk, std::shared_ptr<Segments> segments, OnLost on_lost)
      : disk_(std::move(disk)), segments_(std::move(segments)), on_lost_(std::move(on_lost)) {}
  // What is flushed was appended before. A failure is told by Segments itself, and nothing is durable from then on.
  void OnFlushBegin(rocksdb::DB*, const rocksdb::FlushJobInfo&) override { segments_->Sync().IgnoreError(); }
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* error) override {
    disk_->Failed(FromRocks(*error));
  }
  bool ShouldBeNotifiedOnFileIO() override { return true; }
  void OnIOError(const rocksdb::IOErrorInfo& error) override {
    using rocksdb::FileOperationType;
    if (!error.file_path.ends_with(".log")) return;
    const absl::Status status = FromRocks(error.io_status);
    if (error.operation == FileOperationType::kAppend) {
      disk_->LogFailed(error.file_path, status);
    } else if (error.operation == FileOperationType::kSync || error.operation == FileOperationType::kFsync) {
      on_lost_(error.file_path, status);
    }
  }

 private:
  const std::shared_ptr<DiskState> disk_;
  const std::shared_ptr<Segments> segments_;
  const OnLost on_lost_;
};

// RocksDB's warnings go where the server's go. A file of its own (DBOptions::info_log) would be written again after a
// write to it found the disk full, which ends the process by an assertion.
class Warnings : public rocksdb::Logger {
 public:
  explicit Warnings(std::function<void(std::string_view)> on_warning)
      : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL), on_warning_(std::move(on_warning)) {}
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}  // without a level: options and the like
  void LogHeader(const char*, va_list) override {}
  void Logv(const rocksdb::InfoLogLevel level, const char* format, va_list values) override {
    if (!on_warning_ || level < GetInfoLogLevel() || level == rocksdb::InfoLogLevel::HEADER_LEVEL) return;
    std::array<char, 1024> line;
    const int length = std::vsnprintf(line.data(), line.size(), format, values);
    if (length <= 0) return;
    const std::string_view text(line.data(), std::min<size_t>(length, line.size() - 1));
    on_warning_(text.substr(0, text.find_last_not_of(" \n") + 1));
  }

 private:
  const std::function<void(std::string_view)> on_warning_;
};

// FailedPrecondition: there are families that only a later server knows; RocksDB's own words would not say so.
absl::Status CheckFamilies(const rocksdb::DBOptions& options, const std::string& path,
                           const std::vector<rocksdb::ColumnFamilyDescriptor>& known) {
  std::vector<std::string> found;
  if (!rocksdb::DB::ListColumnFamilies(options, path, &found).ok()) return absl::OkStatus();  // a new one, or damaged
  for (const std::string& name : found) {
    const bool is_known =
        std::any_of(known.begin(), known.end(), [&](const auto& family) { return family.name == name; });
    if (!is_known) {
      return absl::FailedPreconditionError(Cat("data directory ", path,
                                               " was written by a later msprobe-server: it has \"", name,
                                               "\", which storage format ", kStorageFormat, " does not know"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FromRocks(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (status.IsNotFound()) return absl::NotFoundError(status.ToString());
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(status.ToString());
  if (status.IsIOError()) return absl::UnavailableError(status.ToString());
  if (status.IsCorruption()) return absl::DataLossError(status.ToString());
  return absl::InternalError(status.ToString());
}

absl::StatusOr<std::unique_ptr<Rocks>> Rocks::Open(const StoreOptions& options, DirectoryLock lock) {
  if (!RocksUsesCrc32c()) return absl::InternalError("RocksDB computes checksums by table: crc32c.h was linked wrong");
  rocksdb::Env* const env = options.env == nullptr ? rocksdb::Env::Default() : options.env;
  rocksdb::DBOptions db_options;
  db_options.env = env;
  db_options.create_if_missing = true;
  db_options.create_missing_column_families = true;
  db_options.max_background_jobs = 2;
  db_options.max_open_files = 256;
  db_options.max_total_wal_size = kMaxWalBytes;
  db_options.info_log = std::make_shared<Warnings>(options.on_warning);
  // After a crash: everything up to the first damaged record, nothing behind it. A prefix, no hole.
  db_options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;

  db_options.write_buffer_manager =
      std::make_shared<rocksdb::WriteBufferManager>(options.write_buffer_bytes, nullptr, /*allow_stall=*/true);

  auto cache = rocksdb::NewLRUCache(options.block_cache_bytes);
  std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, FamilyOptions(Family::kMeta, options, cache)},
      {"meta", FamilyOptions(Family::kMeta, options, cache)},
      {"rows", FamilyOptions(Family::kRows, options, cache)},
      {"tiles", FamilyOptions(Family::kTiles, options, cache)},
      {"payloads", FamilyOptions(Family::kPayloads, options, cache)},
      {"extents", FamilyOptions(Family::kExtents, options, cache)}};

  const std::string path = options.directory + "/store";
  std::error_code ignored;  // RocksDB makes it as well, with a warning
  std::filesystem::create_directory(path, ignored);
  if (absl::Status known = CheckFamilies(db_options, path, families); !known.ok()) return known;
  std::unique_ptr<Rocks> rocks(new Rocks(std::move(lock)));
  rocks->disk = std::make_shared<DiskState>(options.reserve_bytes);
  const OnLost on_lost = [disk = rocks->disk, heard = options.on_log_lost](const std::string& log,
                                                                           const absl::Status& status) {
    disk->LogLost(log, status);
    if (heard) heard(status);
  };
  auto ordered = std::make_shared<OrderedLogs>(
      env->GetFileSystem(),
      [on_lost](const std::string& log, const rocksdb::IOStatus& status) { on_lost(log, FromRocks(status)); });
  rocks->env = rocksdb::NewCompositeEnv(std::move(ordered));
  db_options.env = rocks->env.get();
  auto segments = Segments::Open({.directory = options.directory + "/segments",
                                  .env = env,
                                  .roll_bytes = options.segment_bytes,
                                  .on_lost = [on_lost](const absl::Status& status) { on_lost("segments", status); }});
  if (!segments.ok()) return segments.status();
  rocks->segments = *std::move(segments);
  rocks->filter = std::make_unique<ExtentFilter>(&rocks->segments->directory());
  db_options.wal_filter = rocks->filter.get();
  db_options.listeners.push_back(std::make_shared<Listener>(rocks->disk, rocks->segments, on_lost));
  rocksdb::DB* db = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(db_options, path, families, &rocks->owned, &db);
  if (!status.ok()) {
    absl::Status failed = FromRocks(status);
    return absl::Status(failed.code(), Cat("cannot open data directory ", options.directory, ": ", failed.message()));
  }
  rocks->db.reset(db);
  if (absl::Status sealed = rocks->segments->directory().SealUnproven(); !sealed.ok()) return sealed;
  for (size_t i = 0; i < rocks->handles.size(); ++i) rocks->handles[i] = rocks->owned[i + 1];
  rocks->disk->Connect({
      .free_bytes = [db, path = options.directory](
                        uint64_t* bytes) { return FromRocks(db->GetEnv()->GetFreeSpace(path, bytes)); },
      .resume = [rocks = rocks.get()](const std::string& log) { return rocks->Resume(log); },
  });
  rocks->sync = std::make_unique<GroupSync>(options.durability, options.sync_interval,
                                            [rocks = rocks.get()] { return rocks->SyncAll(); });
  return rocks;
}

absl::Status Rocks::SyncAll() {
  if (absl::Status status = segments->Sync(); !status.ok()) return status;
  return disk->SyncLog([this] { return FromRocks(db->SyncWAL()); });
}

absl::Status Rocks::Resume(const std::string& failed_log) {
  rocksdb::WriteOptions without_log;
  without_log.disableWAL = true;
  without_log.no_slowdown = true;
  if (!failed_log.empty()) {
    // The thread whose append failed may not yet be back in RocksDB, which then has nothing to resume from. A write
    // stands in line behind it.
    rocksdb::WriteBatch nothing;
    db->Write(without_log, &nothing).PermitUncheckedError();
    // Resuming begins a new log by writing memtables out (DBImpl::ResumeImpl), so there must be something in one.
    uint64_t entries = 0;
    for (rocksdb::ColumnFamilyHandle* family : owned) {
      uint64_t of_family = 0;
      db->GetIntProperty(family, rocksdb::DB::Properties::kNumEntriesActiveMemTable, &of_family);
      entries += of_family;
    }
    std::unique_ptr<rocksdb::LogFile> current;
    if (absl::Status status = FromRocks(db->GetCurrentWalFile(&current)); !status.ok()) return status;
    if (entries == 0 && failed_log.ends_with(current->PathName())) {
      disk->Failed(
          absl::UnavailableError("the disk was full when a new log was begun, which cannot be replaced while the "
                                 "server runs; start it again"));
      return disk->final();
    }
  }
  if (absl::Status status = FromRocks(db->Resume()); !status.ok()) return status;
  // All memtables may be empty now; should the next append fail, this is what will be written out. The default family
  // has nothing else.
  return FromRocks(db->Put(without_log, owned.front(), "after resuming", ""));
}

absl::StatusOr<std::vector<Extent>> Rocks::AppendToSegments(std::span<const std::string_view> contents) {
  if (contents.empty()) return std::vector<Extent>();
  absl::StatusOr<std::vector<Extent>> extents = segments->Append(contents);
  if (!extents.ok()) disk->Failed(extents.status());
  return extents;
}

absl::Status Rocks::AddChunkDeletion(const std::string& prefix, rocksdb::WriteBatch& batch) {
  // Chunks are stored in order: without the first there is none. It is asked for because a range that is deleted costs
  // each later read of its family, and most uploads are new.
  std::string first = prefix;
  AppendU32(first, 0);
  bool stored = false;
  for (Family family : {Family::kExtents, Family::kPayloads}) {
    std::string value;
    stored |= db->KeyMayExist(rocksdb::ReadOptions(), Handle(family), first, &value);
  }
  if (!stored) return absl::OkStatus();
  for (Family family : {Family::kExtents, Family::kPayloads}) {
    rocksdb::Status status = batch.DeleteRange(Handle(family), prefix, PrefixEnd(prefix));
    if (!status.ok()) return FromRocks(status);
  }
  return absl::OkStatus();
}

Rocks::~Rocks() {
  sync.reset();
  if (db == nullptr) return;
  for (rocksdb::ColumnFamilyHandle* handle : owned) db->DestroyColumnFamilyHandle(handle);
  db->Close();
}

}  // namespace msprobe::server
