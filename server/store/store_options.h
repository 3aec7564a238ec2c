#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "msprobe/v1/ingest.pb.h"

namespace rocksdb {
class Env;
}

namespace msprobe::server {

// How a store is opened. Fixed while it is open.
struct StoreOptions {
  std::string directory;  // the data directory
  // The meaning of "durable" to agents; see GroupSync.
  v1::Durability durability = v1::DURABILITY_SYNC;
  absl::Duration sync_interval = absl::Seconds(1);  // DURABILITY_INTERVAL only
  size_t block_cache_bytes = size_t{64} << 20;
  size_t memtable_bytes = size_t{32} << 20;  // for rows, and as much again for payloads
  // Limit for bytes that are written but not yet in files, over all families. Writers wait at the limit.
  size_t write_buffer_bytes = size_t{256} << 20;
  size_t segment_chunk_bytes = size_t{64} << 10;  // chunks from this size on go to segments: they are padded to 4 KiB
  uint64_t segment_bytes = uint64_t{64} << 20;    // see SegmentsOptions::roll_bytes
  std::function<absl::Time()> now;                // empty: the wall clock
  uint64_t reserve_bytes = 0;                     // kept free on the disk: see DiskState
  rocksdb::Env* env = nullptr;                    // borrowed; null: the operating system's files. For tests: CrashDisk
  // Receives RocksDB's own warnings, one line a call, on any of its threads. It must not call the store.
  std::function<void(std::string_view)> on_warning;
  // Called when a sync of the log failed, on the thread that met the failure. No other thread can touch that log before
  // it returns; one that did would run into one of RocksDB's assertions. It must end the process. If it is empty,
  // Database::broken() tells of the failure.
  std::function<void(const absl::Status&)> on_log_lost;
  // Called when a run is gone, on the thread that deleted it. It must not call the store.
  std::function<void(const std::string& run)> on_run_deleted;
};

}  // namespace msprobe::server
