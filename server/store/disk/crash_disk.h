#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace rocksdb {
class Env;
}

namespace msprobe::server {

// For tests: a disk that loses what was not synced, under RocksDB (StoreOptions::env).
//
// 1. Bytes appended and not synced live in this process. A kill -9 of it, or Crash, loses them, but for a part that is
//    written back by chance, as an operating system may: any prefix, not only whole records.
// 2. A file whose directory was not synced after it was made is gone after a crash, or there by chance, and then so is
//    every file that was made before it. After a kill -9 the next CrashDisk of that directory removes what is gone;
//    after Crash it is gone at once.
// 3. A sync that fails loses its bytes for good: zeros stand in their place, whatever is synced later.
// 4. Destruction without Crash is a clean end of the machine: everything is written.
// 5. What is renamed or deleted is so at once, and with a rename what was made in that directory before it: a journal
//    keeps their order, and RocksDB, which names a manifest by a rename before it syncs the directory, relies on it.
// Threads: every method from any thread. Outlives the Store that uses it.
class CrashDisk {
 public:
  // `directory`: the data directory; its contents are as an earlier kill -9 left them. `seed`: of what is written back.
  CrashDisk(const std::string& directory, uint64_t seed);
  ~CrashDisk();

  rocksdb::Env* env() const;

  // Unsynced bytes are lost. From now on nothing that is still running reaches the disk: what it appends and syncs
  // vanishes, and nobody is told, as nobody is after a power failure (an error would be handled, or meet one of
  // RocksDB's assertions). So what is acknowledged after this call means nothing. Other changes are refused.
  void Crash();
  // How many bytes can still be written before the disk is full; absent: any number. A write that does not fit writes
  // what does and fails.
  void SetRoom(std::optional<uint64_t> bytes);
  // While it is held, what appends to the log or syncs it waits: a disk that is busy with something else.
  void HoldLog(bool hold);
  void HoldLogSyncs(bool hold);  // syncs alone
  size_t waiting() const;        // for the log that is held
  void FailSyncs(bool fail);
  // From so many syncs of files on, each fails.
  void FailSyncsAfter(uint64_t syncs);
  uint64_t lost_bytes() const;  // by Crash so far
  uint64_t syncs() const;       // of files

 private:
  class FileSystem;
  std::shared_ptr<FileSystem> files_;
  std::unique_ptr<rocksdb::Env> env_;
};

}  // namespace msprobe::server
