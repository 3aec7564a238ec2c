#pragma once

// Included inside server/store only, like every header that shows RocksDB.

#include <rocksdb/db.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/store/change_set.h"
#include "server/store/disk/directory_lock.h"
#include "server/store/disk/disk_state.h"
#include "server/store/log/group_sync.h"
#include "server/store/segments/extent_filter.h"
#include "server/store/segments/segments.h"
#include "server/store/store_options.h"

namespace msprobe::server {

absl::Status FromRocks(const rocksdb::Status& status);
inline rocksdb::Slice Slice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

// RocksDB, opened, with everything that it needs beside it. Members are constant after Open.
struct Rocks {
  static absl::StatusOr<std::unique_ptr<Rocks>> Open(const StoreOptions& options, DirectoryLock lock);
  ~Rocks();

  rocksdb::ColumnFamilyHandle* Handle(Family family) const { return handles[static_cast<size_t>(family)]; }

  // As Segments::Append. Tells the disk of a failure.
  absl::StatusOr<std::vector<Extent>> AppendToSegments(std::span<const std::string_view> contents);
  absl::Status AddChunkDeletion(const std::string& prefix, rocksdb::WriteBatch& batch);
  // Now, whatever the durability: segments, then the log.
  absl::Status SyncAll();
  absl::Status Resume(const std::string& failed_log);  // see DiskState::Disk

  DirectoryLock lock;                    // released last
  std::shared_ptr<DiskState> disk;       // shared with the listener that RocksDB holds
  std::shared_ptr<Segments> segments;    // likewise
  std::unique_ptr<ExtentFilter> filter;  // borrowed by the db
  std::unique_ptr<rocksdb::Env> env;     // likewise
  std::unique_ptr<rocksdb::DB> db;
  std::array<rocksdb::ColumnFamilyHandle*, 5> handles{};
  std::vector<rocksdb::ColumnFamilyHandle*> owned;
  std::unique_ptr<GroupSync> sync;
  // Shared: from appending chunks to a segment until their rows are written. Exclusive: no row of a chunk changes, and
  // every chunk in a closed segment that will have a row has it.
  absl::Mutex chunk_mutex;

 private:
  explicit Rocks(DirectoryLock lock) : lock(std::move(lock)) {}
};

}  // namespace msprobe::server
