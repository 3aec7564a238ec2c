#include "server/store/database.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>

#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/store/rocks.h"

namespace msprobe::server {

Database::Database(StoreOptions options) : options_(std::move(options)) {
  if (!options_.now) options_.now = [] { return absl::Now(); };
}

// Whoever waits for a sync is told while this object is still whole.
Database::~Database() {
  if (rocks_ != nullptr) rocks_->sync.reset();
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(StoreOptions options) {
  std::unique_ptr<Database> database(new Database(std::move(options)));
  absl::StatusOr<DirectoryLock> lock = DirectoryLock::Acquire(database->options_.directory);
  if (!lock.ok()) return lock.status();
  auto rocks = Rocks::Open(database->options_, *std::move(lock));
  if (!rocks.ok()) return rocks.status();
  database->rocks_ = *std::move(rocks);
  return database;
}

absl::Status Database::Write(const ChangeSet& changes) {
  std::optional<absl::ReaderMutexLock> chunks;
  if (changes.has_chunks()) chunks.emplace(&rocks_->chunk_mutex);
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
  const absl::StatusOr<std::vector<Extent>> extents = rocks_->AppendToSegments(contents);
  if (!extents.ok()) return extents.status();
  auto extent = extents->begin();
  rocksdb::WriteBatch batch;
  for (const ChangeSet::Change& change : changes.changes()) {
    rocksdb::ColumnFamilyHandle* family = rocks_->Handle(change.family);
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
                          ? batch.Put(rocks_->Handle(Family::kExtents), change.key, (extent++)->Encode())
                          : batch.Put(rocks_->Handle(Family::kPayloads), Slice(change.key), Slice(change.content)));
        break;
      case ChangeSet::Kind::kDeleteChunks:
        status = rocks_->AddChunkDeletion(change.key, batch);
        break;
    }
    if (!status.ok()) return status;
  }
  const rocksdb::Status written = rocks_->db->Write(rocksdb::WriteOptions(), &batch);
  write_nanoseconds_ += absl::ToInt64Nanoseconds(absl::Now() - start);
  if (written.ok()) written_bytes_ += batch.GetDataSize() + content_bytes;
  return FromRocks(written);
}

Database::Meters Database::meters() const {
  const GroupSync::Counters sync = rocks_->sync->counters();
  Meters meters{.syncs = sync.syncs,
                .syncs_waiting = sync.waiting,
                .sync_time = sync.busy,
                .sync_lag = sync.lag,
                .written_bytes = written_bytes_,
                .write_time = absl::Nanoseconds(write_nanoseconds_.load())};
  uint64_t stopped = 0, slowed = 0;
  rocks_->db->GetIntProperty("rocksdb.is-write-stopped", &stopped);
  rocks_->db->GetIntProperty("rocksdb.actual-delayed-write-rate", &slowed);
  meters.write_stall = stopped > 0 ? 2 : slowed > 0 ? 1 : 0;
  rocks_->db->GetAggregatedIntProperty("rocksdb.estimate-pending-compaction-bytes", &meters.pending_compaction_bytes);
  rocks_->db->GetIntProperty("rocksdb.block-cache-usage", &meters.block_cache_bytes);
  return meters;
}

uint64_t Database::write_buffer_usage() const {
  uint64_t bytes = 0;
  rocks_->db->GetAggregatedIntProperty("rocksdb.cur-size-all-mem-tables", &bytes);
  return bytes;
}

absl::Status Database::Compact() {
  for (rocksdb::ColumnFamilyHandle* family : rocks_->handles) {
    rocksdb::Status status = rocks_->db->Flush(rocksdb::FlushOptions(), family);
    if (status.ok()) status = rocks_->db->CompactRange(rocksdb::CompactRangeOptions(), family, nullptr, nullptr);
    if (!status.ok()) return FromRocks(status);
  }
  return absl::OkStatus();
}

uint64_t Database::FileBytes(Family family) const {
  uint64_t segments = 0;
  if (family == Family::kPayloads) segments = rocks_->segments->directory().bytes() + FileBytes(Family::kExtents);
  uint64_t tables = 0;
  uint64_t blobs = 0;
  rocks_->db->GetIntProperty(rocks_->Handle(family), "rocksdb.total-sst-files-size", &tables);
  rocks_->db->GetIntProperty(rocks_->Handle(family), "rocksdb.total-blob-file-size", &blobs);
  return tables + blobs + segments;
}

void Database::WhenDurable(std::function<void(absl::Status)> callback) { rocks_->sync->Await(std::move(callback)); }

absl::Status Database::Writable() const { return rocks_->disk->Check(); }
absl::Status Database::broken() const { return rocks_->disk->final(); }
uint64_t Database::free_bytes() const { return rocks_->disk->free_bytes(); }
uint64_t Database::sequence() const { return rocks_->db->GetLatestSequenceNumber(); }

void Database::Tend() { rocks_->disk->Tend(); }

bool Database::in_place() const { return rocks_->lock.InPlace(); }

absl::Status Database::AwaitDurable(absl::Duration timeout) {
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

absl::StatusOr<std::optional<std::string>> Database::Get(Family family, std::string_view key) const {
  std::string value;
  rocksdb::Status status = rocks_->db->Get(rocksdb::ReadOptions(), rocks_->Handle(family), Slice(key), &value);
  if (status.IsNotFound()) return std::optional<std::string>();
  if (!status.ok()) return FromRocks(status);
  return std::optional<std::string>(std::move(value));
}

absl::Status Database::ForEach(Family family, std::string_view prefix, Visit visit) const {
  return ForRange(family, prefix, PrefixEnd(prefix), visit);
}

absl::Status Database::ForRange(Family family, std::string_view begin, std::string_view end, Visit visit) const {
  const rocksdb::Slice upper = Slice(end);
  rocksdb::ReadOptions read;
  // The rows and tiles of a step are read whole, by walks over many steps: these would leave the cache full of them.
  read.fill_cache = family == Family::kMeta;
  if (!end.empty()) read.iterate_upper_bound = &upper;
  std::unique_ptr<rocksdb::Iterator> at(rocks_->db->NewIterator(read, rocks_->Handle(family)));
  for (at->Seek(Slice(begin)); at->Valid(); at->Next()) {
    absl::Status status = visit({at->key().data(), at->key().size()}, {at->value().data(), at->value().size()});
    if (!status.ok()) return status;
  }
  return FromRocks(at->status());
}

}  // namespace msprobe::server
