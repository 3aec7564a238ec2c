#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace rocksdb {
class Env;
}

namespace msprobe::server {

// For tests: a disk under RocksDB (StoreOptions::env) that loses bytes that were not synced, as a power failure does.
//
// 1. Appended bytes live in this process until they are synced. A kill -9 of the process, or Crash, loses them. By
//    chance some survive, since an operating system may have written them back: a prefix of the bytes, which may end
//    within a record.
// 2. A new file is only safe once its directory has been synced. After a crash an unsafe file is gone; or it is there
//    by chance, and then all files made before it are there too. Crash removes such files at once. After a kill -9
//    the next CrashDisk of that directory removes them.
// 3. A sync that fails loses its bytes for good. Zeros stand in their place, even if a later sync succeeds.
// 4. Destruction without Crash is a clean end of the machine: everything is written.
// 5. A rename or deletion takes effect at once, and a rename also makes safe the files that were made in that directory
//    before it. A file system's journal keeps that order, and RocksDB relies on it: it names its manifest by a rename
//    before it syncs the directory.
// Threads: every method from any thread. Outlives the Store that uses it.
class CrashDisk {
 public:
  // `directory`: the data directory, as an earlier kill -9 may have left it. `seed`: decides what survives by chance.
  CrashDisk(const std::string& directory, uint64_t seed);
  ~CrashDisk();

  rocksdb::Env* env() const;

  // The power fails: unsynced bytes are lost. Threads that still run append and sync as before and see no error, but
  // nothing of it reaches the disk, so an acknowledgement after this call means nothing. (An error would be handled, or
  // would run into one of RocksDB's assertions.) Other changes are refused.
  void Crash();
  // How many bytes can still be written before the disk is full; absent: any number. A write that does not fit fails
  // after it has written the part that fits.
  void SetRoom(std::optional<uint64_t> bytes);
  // While the log is held, appends and syncs of it wait, as on a disk that is busy with something else.
  void HoldLog(bool hold);
  void HoldLogSyncs(bool hold);  // syncs alone
  size_t waiting() const;        // how many threads wait for the log
  void FailSyncs(bool fail);
  // This many more syncs of files succeed; then each fails.
  void FailSyncsAfter(uint64_t syncs);
  uint64_t lost_bytes() const;  // by Crash so far
  uint64_t syncs() const;       // of files

 private:
  class FileSystem;
  std::shared_ptr<FileSystem> files_;
  std::unique_ptr<rocksdb::Env> env_;
};

}  // namespace msprobe::server
