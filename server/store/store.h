#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "msprobe/v1/ingest.pb.h"
#include "msprobe/v1/query.pb.h"
#include "server/format/storage/key.h"
#include "server/format/storage/value.h"
#include "server/store/change_set.h"
#include "server/store/record_source.h"
#include "server/store/structure_cache.h"

namespace rocksdb {
class Env;
}

namespace msprobe::server {

struct StoreOptions {
  std::string directory;
  // What "durable" means to agents; see GroupSync.
  v1::Durability durability = v1::DURABILITY_SYNC;
  absl::Duration sync_interval = absl::Seconds(1);  // DURABILITY_INTERVAL only
  size_t block_cache_bytes = size_t{64} << 20;
  size_t memtable_bytes = size_t{32} << 20;  // of each of rows and payloads
  // Of what is written and not yet in files, over all families; a writer waits when it is reached.
  size_t write_buffer_bytes = size_t{256} << 20;
  size_t segment_chunk_bytes = size_t{64} << 10;  // chunks from this size on go to segments: they are padded to 4 KiB
  uint64_t segment_bytes = uint64_t{64} << 20;    // see SegmentsOptions::roll_bytes
  std::function<absl::Time()> now;                // empty: the wall clock
  uint64_t reserve_bytes = 0;                     // kept free on the disk: see DiskState
  rocksdb::Env* env = nullptr;                    // borrowed; null: the operating system's files. For tests: CrashDisk
  // Given RocksDB's own warnings, a line each, on any of its threads; must not call the store.
  std::function<void(std::string_view)> on_warning;
  // Called when a sync of the log failed, on the thread that met it and before any other can touch that log again,
  // which would run into one of RocksDB's assertions. It must end the process. Empty: broken() says it.
  std::function<void(const absl::Status&)> on_log_lost;
  // Called when a run is gone, on the thread that deleted it; must not call the store.
  std::function<void(const std::string& run)> on_run_deleted;
};

// Everything the server keeps, in one RocksDB and, for what is long, segments beside it. The only class (with its parts
// beside it) that knows RocksDB.
//
// Threads: every method from any thread.
// 1. Write is atomic and visible to readers at once; after a crash the store holds a prefix of the writes, at least
//    those whose WhenDurable callback has run.
// 2. A process that holds a Store holds the lock of its directory; a second Open anywhere fails with AlreadyExists.
// 3. Whoever adds references to payloads that are already there holds deletion_mutex() shared from looking to writing.
// 4. Whoever deletes or moves steps (AddStepDeletion, AddRankMove) holds tiling_mutex() shared from before that call to
//    behind the write: it keeps the tiler from writing what is being deleted. Taken after deletion_mutex().
// 5. A row that says where bytes lie in a segment is never durable before they are. Bytes without a row are garbage.
class Store {
 public:
  static absl::StatusOr<std::unique_ptr<Store>> Open(StoreOptions options);
  ~Store();

  // False: the data directory was removed or replaced under this process (DirectoryLock::InPlace).
  bool in_place() const;
  const std::string& server_id() const { return server_.server_id(); }
  const StoreOptions& options() const { return options_; }
  absl::Time Now() const { return options_.now(); }

  absl::Status Write(const ChangeSet& changes);
  // The callback runs on another thread once everything written before this call is durable.
  void WhenDurable(std::function<void(absl::Status)> callback);
  // Blocks until everything written before this call is durable.
  absl::Status AwaitDurable(absl::Duration timeout);

  // --- the disk (DiskState says what it promises) -----------------------------------------------------------------
  // Whether new content may be written: ResourceExhausted while the disk is full. Cheap.
  absl::Status Writable() const;
  // A failed sync: this process must end. OK: nothing.
  absl::Status broken() const;
  uint64_t free_bytes() const;
  // Looks at the disk, resumes writing where there is room again. Call about every 200 ms.
  void Tend();

  // --- reading by key -------------------------------------------------------------------------------------------
  absl::StatusOr<std::optional<std::string>> Get(Family family, std::string_view key) const;
  template <typename Message>
  absl::StatusOr<std::optional<Message>> Find(std::string_view key) const {
    auto bytes = Get(Family::kMeta, key);
    if (!bytes.ok()) return bytes.status();
    if (!bytes->has_value()) return std::optional<Message>();
    auto message = DecodeAs<Message>(**bytes);
    if (!message.ok()) return message.status();
    return std::optional<Message>(*std::move(message));
  }
  // In order of key, over a snapshot. Stops at the first status that is not OK.
  absl::Status ForEach(Family family, std::string_view prefix,
                       absl::FunctionRef<absl::Status(std::string_view key, std::string_view value)> visit) const;

  // --- runs and sessions ----------------------------------------------------------------------------------------
  // The row of a known session id, or a new one (and a new run where the name is new).
  // FailedPrecondition: the session is known under another run.
  // `owner`: of a new run.
  absl::StatusOr<storage::SessionRow> RegisterSession(const v1::Hello& hello, const std::string& owner = "");
  absl::StatusOr<std::vector<storage::RunRow>> Runs() const;
  // The run of this name; a new one with these shards and this owner where there is none.
  absl::StatusOr<storage::RunRow> PlaceRun(const std::string& name, const std::vector<std::string>& shards,
                                           const std::string& owner = "");
  // Nothing: there is no such run.
  absl::StatusOr<std::optional<storage::RunRow>> LookUpRun(const std::string& name) const;
  // NotFound names the run and those that exist.
  absl::StatusOr<storage::RunRow> FindRun(const std::string& name) const;
  // Of all runs, or of one.
  absl::StatusOr<std::vector<storage::SessionRow>> Sessions(std::optional<uint32_t> run = std::nullopt) const;
  absl::StatusOr<storage::SessionRow> SessionOfEpoch(uint32_t run, uint32_t epoch) const;
  absl::StatusOr<StoredDefinition> Definition(uint32_t run, uint64_t id) const;  // NotFound
  // NotFound. DataLoss: the definition is something else, or damaged.
  absl::StatusOr<SharedStructure> Structure(uint32_t run, uint64_t id) const;

  // --- steps ----------------------------------------------------------------------------------------------------
  using Step = std::pair<StepKey, storage::StepRow>;
  // Of a run, in order of rank, step, epoch.
  absl::StatusOr<std::vector<Step>> Steps(uint32_t run) const;
  // What each session of a rank, in order of epoch, left of one step.
  absl::StatusOr<std::vector<Step>> Steps(uint32_t run, const v1::Rank& rank, uint32_t step) const;
  // Epoch absent: the latest that has the step. NotFound names what does exist.
  absl::StatusOr<std::unique_ptr<RecordSource>> OpenStep(const std::string& run, uint32_t step, const v1::Rank& rank,
                                                         std::optional<uint32_t> epoch = std::nullopt) const;
  // Sum of the sizes of the distinct payloads that a run refers to.
  absl::StatusOr<uint64_t> ReferencedBytes(uint32_t run) const;

  // Adds what forgets a step: rows or its part of tiles, step row, faults. Tiles go with the last of their passes.
  // References of its payloads stay with the run.
  absl::Status AddStepDeletion(const StepKey& step, ChangeSet& changes) const;
  // Adds what moves all that a session stored from one rank to another.
  absl::Status AddRankMove(uint32_t run, uint32_t epoch, uint32_t from, uint32_t to, ChangeSet& changes) const;

  // --- payloads -------------------------------------------------------------------------------------------------
  // In chunks as they were stored. NotFound: it is not (wholly) here.
  absl::Status ReadPayload(std::string_view hash, absl::FunctionRef<absl::Status(std::string_view chunk)> visit) const;

  // The chunks that hold some of `size` bytes from `offset` on, each with the offset of its first byte. Where chunks
  // are of one size the others are not read.
  absl::Status ReadPayloadRange(std::string_view hash, uint64_t offset, uint64_t size,
                                absl::FunctionRef<absl::Status(uint64_t offset, std::string_view chunk)> visit) const;

  struct Deleted {
    uint64_t row_bytes = 0;
    uint64_t payload_bytes = 0;  // freed: no other run refers to them
  };
  // NotFound as FindRun. FailedPrecondition: a session of the run is open.
  absl::StatusOr<Deleted> DeleteRun(const std::string& name);
  // Counts DeleteRun: what it deleted takes up disk until ReclaimSpace.
  uint64_t runs_deleted() const { return runs_deleted_; }
  // Gives the disk what was deleted: files that hold nothing else go, others are rewritten where at least half of them
  // is garbage. Takes as long as it takes; reading and writing go on.
  absl::Status ReclaimSpace();
  // The same for segments alone, with what a crash left in them: a scan of small rows, about 1 s for 1 TB.
  absl::Status CollectSegments();

  // NotFound as FindRun.
  absl::Status SetPinned(const std::string& name, bool pinned);
  // Keeps what was asked of the run's processes, the latest hundred. NotFound as FindRun.
  absl::Status NoteControl(const std::string& name, const v1::ControlNote& note);

  // Everything written before this call, as a store of its own in a new directory: a data directory, but for the lock.
  // Files that never change are linked where the file system can. Reading and writing go on.
  absl::Status Checkpoint(const std::string& directory) const;

  absl::Mutex& deletion_mutex() const { return deletion_mutex_; }
  absl::Mutex& tiling_mutex() const { return tiling_mutex_; }
  // Changes with every deletion and move of steps.
  uint64_t deletions() const { return deletions_; }

  // Bytes in memory that are not yet in files, over all families.
  uint64_t write_buffer_usage() const;
  // Moves everything into files and merges them. For measurements and maintenance: it takes as long as it takes.
  absl::Status Compact();
  // Bytes of the files of a family; those of segments are of payloads.
  uint64_t FileBytes(Family family) const;

  // What it is doing, for metrics. About 50 us.
  struct Meters {
    uint64_t syncs = 0, syncs_waiting = 0;
    absl::Duration sync_time, sync_lag;
    uint64_t written_bytes = 0;
    absl::Duration write_time;
    int write_stall = 0;  // 0 none, 1 slowed, 2 stopped, by RocksDB
    uint64_t pending_compaction_bytes = 0, block_cache_bytes = 0;
  };
  Meters meters() const;

 private:
  struct Database;
  class SegmentMover;

  explicit Store(StoreOptions options);
  // Nothing: it is not here.
  absl::StatusOr<std::optional<std::string>> ReadChunk(const std::string& key) const;
  absl::StatusOr<std::vector<Step>> StepsUnder(const std::string& prefix) const;
  absl::Status LoadServerRow();
  // An earlier format is read as it is; what is written from now on is of this one.
  absl::Status AdoptFormat();
  // The run of this name, or a new one, which `changes` and `server` then hold.
  absl::StatusOr<storage::RunRow> RunOrNew(const std::string& name, const std::string& owner,
                                           storage::ServerRow& server, ChangeSet& changes) const;

  StoreOptions options_;
  std::unique_ptr<Database> database_;
  mutable StructureCache structures_;
  storage::ServerRow server_;  // next_run is guarded by registry_mutex_, the rest constant after Open
  absl::Mutex registry_mutex_;
  mutable absl::Mutex deletion_mutex_ ABSL_ACQUIRED_BEFORE(registry_mutex_);
  mutable absl::Mutex tiling_mutex_ ABSL_ACQUIRED_AFTER(deletion_mutex_);
  // Exclusive: what is in a closed segment and has a row coming has it; and no row of a chunk changes meanwhile.
  absl::Mutex chunk_mutex_ ABSL_ACQUIRED_AFTER(tiling_mutex_);
  // Held by whoever deletes segments, and by a checkpoint, which needs all of them.
  mutable absl::Mutex collection_mutex_ ABSL_ACQUIRED_BEFORE(chunk_mutex_);
  mutable std::atomic<uint64_t> deletions_ = 0;
  std::atomic<uint64_t> runs_deleted_ = 0;
  std::atomic<uint64_t> written_bytes_ = 0;
  std::atomic<int64_t> write_nanoseconds_ = 0;
};

// When a session was opened, by the server's clock; of a row of an earlier version, by its agent's.
inline int64_t OpenedUnixUs(const storage::SessionRow& session) {
  return session.opened_unix_us() != 0 ? session.opened_unix_us() : session.hello().started_unix_us();
}

}  // namespace msprobe::server
