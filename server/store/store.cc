#include "server/store/store.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <fstream>
#include <utility>

#include "absl/random/random.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/store/database.h"

namespace msprobe::server {

Store::Store(StoreOptions options) : options_(std::move(options)) {
  if (!options_.now) options_.now = [] { return absl::Now(); };
}

Store::~Store() {
  if (database_ != nullptr) database_->sync.reset();
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(StoreOptions options) {
  std::unique_ptr<Store> store(new Store(std::move(options)));
  absl::StatusOr<DirectoryLock> lock = DirectoryLock::Acquire(store->options_.directory);
  if (!lock.ok()) return lock.status();
  auto database = Database::Open(store->options_, *std::move(lock));
  if (!database.ok()) return database.status();
  store->database_ = *std::move(database);
  if (absl::Status status = store->LoadServerRow(); !status.ok()) return status;
  return store;
}

absl::Status Store::LoadServerRow() {
  auto row = Find<storage::ServerRow>(ServerKey());
  if (!row.ok()) return row.status();
  if (row->has_value()) {
    server_ = **row;
    if (server_.format_version() == kStorageFormat) return absl::OkStatus();
    if (server_.format_version() == 1) return AdoptFormat();
    return absl::FailedPreconditionError(Cat("data directory ", options_.directory, " has storage format ",
                                             server_.format_version(), "; this server reads format ", kStorageFormat));
  }
  absl::BitGen random;
  std::string id;
  AppendU64(id, absl::Uniform<uint64_t>(random));
  AppendU64(id, absl::Uniform<uint64_t>(random));
  server_.set_format_version(kStorageFormat);
  server_.set_server_id(Hex(id));
  server_.set_created_unix_us(absl::ToUnixMicros(Now()));
  server_.set_next_run(1);
  ChangeSet changes;
  changes.PutMeta(ServerKey(), server_);
  return Write(changes);
}

absl::Status Store::AdoptFormat() {
  server_.set_format_version(kStorageFormat);
  ChangeSet changes;
  changes.PutMeta(ServerKey(), server_);
  return Write(changes);
}

absl::Status Store::Write(const ChangeSet& changes) {
  std::optional<absl::ReaderMutexLock> chunks;
  if (changes.has_chunks()) chunks.emplace(&chunk_mutex_);
  const absl::Time start = absl::Now();
  uint64_t content_bytes = 0;
  const auto in_segment = [&](const ChangeSet::Change& change) {
    return change.kind == ChangeSet::Kind::kPutChunk && change.content.size() >= options_.segment_chunk_bytes;
  };
  std::vector<std::string_view> contents;
  for (const ChangeSet::Change& change : changes.changes()) {
    if (!in_segment(change)) continue;
    contents.push_back(change.content);
    content_bytes += change.content.size();
  }
  const absl::StatusOr<std::vector<Extent>> extents = database_->AppendToSegments(contents);
  if (!extents.ok()) return extents.status();
  auto extent = extents->begin();
  rocksdb::WriteBatch batch;
  for (const ChangeSet::Change& change : changes.changes()) {
    rocksdb::ColumnFamilyHandle* family = database_->Handle(change.family);
    absl::Status status;
    switch (change.kind) {
      case ChangeSet::Kind::kPut:
        status = FromRocks(batch.Put(family, change.key, change.value));
        break;
      case ChangeSet::Kind::kDelete:
        status = FromRocks(batch.Delete(family, change.key));
        break;
      case ChangeSet::Kind::kDeletePrefix:
        status = FromRocks(batch.DeleteRange(family, change.key, PrefixEnd(change.key)));
        break;
      case ChangeSet::Kind::kPutChunk:
        status =
            FromRocks(in_segment(change)
                          ? batch.Put(database_->Handle(Family::kExtents), change.key, (extent++)->Encode())
                          : batch.Put(database_->Handle(Family::kPayloads), Slice(change.key), Slice(change.content)));
        break;
      case ChangeSet::Kind::kDeleteChunks:
        status = database_->AddChunkDeletion(change.key, batch);
        break;
    }
    if (!status.ok()) return status;
  }
  const rocksdb::Status written = database_->db->Write(rocksdb::WriteOptions(), &batch);
  write_nanoseconds_ += absl::ToInt64Nanoseconds(absl::Now() - start);
  if (written.ok()) written_bytes_ += batch.GetDataSize() + content_bytes;
  return FromRocks(written);
}

Store::Meters Store::meters() const {
  const GroupSync::Counters sync = database_->sync->counters();
  Meters meters{.syncs = sync.syncs,
                .syncs_waiting = sync.waiting,
                .sync_time = sync.busy,
                .sync_lag = sync.lag,
                .written_bytes = written_bytes_,
                .write_time = absl::Nanoseconds(write_nanoseconds_.load())};
  uint64_t stopped = 0, slowed = 0;
  database_->db->GetIntProperty("rocksdb.is-write-stopped", &stopped);
  database_->db->GetIntProperty("rocksdb.actual-delayed-write-rate", &slowed);
  meters.write_stall = stopped > 0 ? 2 : slowed > 0 ? 1 : 0;
  database_->db->GetAggregatedIntProperty("rocksdb.estimate-pending-compaction-bytes",
                                          &meters.pending_compaction_bytes);
  database_->db->GetIntProperty("rocksdb.block-cache-usage", &meters.block_cache_bytes);
  return meters;
}

uint64_t Store::write_buffer_usage() const {
  uint64_t bytes = 0;
  database_->db->GetAggregatedIntProperty("rocksdb.cur-size-all-mem-tables", &bytes);
  return bytes;
}

absl::Status Store::Compact() {
  for (rocksdb::ColumnFamilyHandle* family : database_->handles) {
    rocksdb::Status status = database_->db->Flush(rocksdb::FlushOptions(), family);
    if (status.ok()) status = database_->db->CompactRange(rocksdb::CompactRangeOptions(), family, nullptr, nullptr);
    if (!status.ok()) return FromRocks(status);
  }
  return absl::OkStatus();
}

uint64_t Store::FileBytes(Family family) const {
  uint64_t segments = 0;
  if (family == Family::kPayloads) segments = database_->segments->directory().bytes() + FileBytes(Family::kExtents);
  uint64_t tables = 0;
  uint64_t blobs = 0;
  database_->db->GetIntProperty(database_->Handle(family), "rocksdb.total-sst-files-size", &tables);
  database_->db->GetIntProperty(database_->Handle(family), "rocksdb.total-blob-file-size", &blobs);
  return tables + blobs + segments;
}

void Store::WhenDurable(std::function<void(absl::Status)> callback) { database_->sync->Await(std::move(callback)); }

absl::Status Store::Writable() const { return database_->disk->Check(); }
absl::Status Store::broken() const { return database_->disk->final(); }
uint64_t Store::free_bytes() const { return database_->disk->free_bytes(); }
void Store::Tend() { database_->disk->Tend(); }

bool Store::in_place() const { return database_->lock.InPlace(); }

absl::Status Store::AwaitDurable(absl::Duration timeout) {
  struct Waiter {
    absl::Notification done;
    absl::Status status;
  };
  auto waiter = std::make_shared<Waiter>();
  WhenDurable([waiter](absl::Status status) {
    waiter->status = std::move(status);
    waiter->done.Notify();
  });
  if (!waiter->done.WaitForNotificationWithTimeout(timeout)) {
    return absl::DeadlineExceededError(Cat("the store did not sync within ", absl::FormatDuration(timeout)));
  }
  return waiter->status;
}

absl::StatusOr<std::optional<std::string>> Store::Get(Family family, std::string_view key) const {
  std::string value;
  rocksdb::Status status = database_->db->Get(rocksdb::ReadOptions(), database_->Handle(family), Slice(key), &value);
  if (status.IsNotFound()) return std::optional<std::string>();
  if (!status.ok()) return FromRocks(status);
  return std::optional<std::string>(std::move(value));
}

absl::Status Store::ForEach(Family family, std::string_view prefix,
                            absl::FunctionRef<absl::Status(std::string_view, std::string_view)> visit) const {
  const std::string end = PrefixEnd(prefix);
  const rocksdb::Slice upper(end);
  rocksdb::ReadOptions read;
  // Rows of a step are read once and whole: the cache is for what is read again. A tile is, by each of its passes.
  read.fill_cache = family == Family::kMeta || family == Family::kTiles;
  if (!end.empty()) read.iterate_upper_bound = &upper;
  std::unique_ptr<rocksdb::Iterator> at(database_->db->NewIterator(read, database_->Handle(family)));
  for (at->Seek(Slice(prefix)); at->Valid(); at->Next()) {
    absl::Status status = visit({at->key().data(), at->key().size()}, {at->value().data(), at->value().size()});
    if (!status.ok()) return status;
  }
  return FromRocks(at->status());
}

}  // namespace msprobe::server
