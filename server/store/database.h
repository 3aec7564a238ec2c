#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/format/storage/value.h"
#include "server/store/change_set.h"
#include "server/store/store_options.h"

namespace msprobe::server {

struct Rocks;

// The bytes of a store: keys and values in one RocksDB, and long payload chunks in segments beside it. It knows keys,
// families and atomic writes; what the keys mean is the business of the parts above it (see Store).
//
// Threads: every method from any thread.
// 1. Write is atomic and visible to readers at once. After a crash the database holds a prefix of the writes, which
//    includes at least those whose WhenDurable callback has run.
// 2. A process that holds a Database holds the lock of its directory. A second Open anywhere fails with AlreadyExists.
// 3. A row that says where bytes lie in a segment is never durable before those bytes. Bytes without a row are garbage.
class Database {
 public:
  static absl::StatusOr<std::unique_ptr<Database>> Open(StoreOptions options);
  ~Database();

  const StoreOptions& options() const { return options_; }
  absl::Time Now() const { return options_.now(); }

  // --- writing --------------------------------------------------------------------------------------------------
  absl::Status Write(const ChangeSet& changes);
  // The callback runs on another thread once everything written before this call is durable.
  void WhenDurable(std::function<void(absl::Status)> callback);
  // Blocks until everything written before this call is durable.
  absl::Status AwaitDurable(absl::Duration timeout);

  // --- reading by key -------------------------------------------------------------------------------------------
  absl::StatusOr<std::optional<std::string>> Get(Family family, std::string_view key) const;
  // A message under a key of Family::kMeta.
  template <typename Message>
  absl::StatusOr<std::optional<Message>> Find(std::string_view key) const {
    auto bytes = Get(Family::kMeta, key);
    if (!bytes.ok()) return bytes.status();
    if (!bytes->has_value()) return std::optional<Message>();
    auto message = DecodeAs<Message>(**bytes);
    if (!message.ok()) return message.status();
    return std::optional<Message>(*std::move(message));
  }
  // In order of key, over a snapshot. Stops at the first status that is not OK, and returns it.
  using Visit = absl::FunctionRef<absl::Status(std::string_view key, std::string_view value)>;
  absl::Status ForEach(Family family, std::string_view prefix, Visit visit) const;
  // The same of the keys from `begin` to before `end`; an empty end: to the last.
  absl::Status ForRange(Family family, std::string_view begin, std::string_view end, Visit visit) const;

  // Grows with each write, so what was read at this number holds as long as it is the same.
  uint64_t sequence() const;

  // --- the disk (DiskState says what it promises) ---------------------------------------------------------------
  // Whether new content may be written: ResourceExhausted while the disk is full. Cheap.
  absl::Status Writable() const;
  // Not OK after a failed sync: this process must end.
  absl::Status broken() const;
  uint64_t free_bytes() const;
  // Looks at the disk, and resumes writing where there is room again. Call about twice a second.
  void Tend();
  // False: the data directory was removed or replaced under this process (DirectoryLock::InPlace).
  bool in_place() const;

  // --- measuring ------------------------------------------------------------------------------------------------
  // Bytes in memory that are not yet in files, over all families.
  uint64_t write_buffer_usage() const;
  // Bytes in the files of a family. Segments count as payloads.
  uint64_t FileBytes(Family family) const;
  // Moves everything into files and merges them. For measurements and maintenance: it takes as long as it takes.
  absl::Status Compact();

  // The state of the database, for metrics. Takes about 50 us.
  struct Meters {
    uint64_t syncs = 0, syncs_waiting = 0;
    absl::Duration sync_time, sync_lag;
    uint64_t written_bytes = 0;
    absl::Duration write_time;
    int write_stall = 0;  // 0 none, 1 slowed, 2 stopped, by RocksDB
    uint64_t pending_compaction_bytes = 0, block_cache_bytes = 0;
  };
  Meters meters() const;

  // For the parts of the store, which include rocks.h.
  Rocks& rocks() const { return *rocks_; }

 private:
  explicit Database(StoreOptions options);

  StoreOptions options_;  // constant after construction
  std::unique_ptr<Rocks> rocks_;
  std::atomic<uint64_t> written_bytes_ = 0;
  std::atomic<int64_t> write_nanoseconds_ = 0;
};

}  // namespace msprobe::server
