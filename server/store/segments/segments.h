#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/format/storage/extent.h"
#include "server/store/disk/block_buffer.h"
#include "server/store/segments/segment_directory.h"

namespace msprobe::server {

struct SegmentsOptions {
  std::string directory;
  rocksdb::Env* env = nullptr;  // borrowed
  // A file that has reached this many bytes gets no more. This bounds how much is read at the start after a crash.
  uint64_t roll_bytes = uint64_t{64} << 20;
  // Called once, on the thread whose sync failed, before anybody is told that something is durable. May be empty.
  std::function<void(const absl::Status&)> on_lost;
};

// The bytes of payload chunks, each written once, past the page cache, into files beside RocksDB.
//
// 1. An appended extent can be read at once, and outlives this process. It outlives a power failure once a Sync that
//    began after the Append has returned OK.
// 2. A failed Append leaves no extent. Nothing more goes into its file; the next append begins a new one.
// 3. A failed Sync is final: no later one returns OK, and no file that was written before it is ever sealed.
// 4. A file is sealed when it is full and synced. So only one file is open, and those of appends under way.
// 5. Memory: one buffer of 1 MiB for all appends, which follow one another, and the handles of SegmentDirectory.
//
// Threads: every method from any thread. Destruction seals what is open.
class Segments {
 public:
  static absl::StatusOr<std::unique_ptr<Segments>> Open(SegmentsOptions options);
  ~Segments();

  // The content is not copied where it is aligned as a BlockBuffer is. ResourceExhausted: the disk is full.
  absl::StatusOr<Extent> Append(std::string_view content) ABSL_LOCKS_EXCLUDED(append_mu_, sync_mu_);
  // Appends all of them or none, one after the other in one file. It takes one write where each content begins at the
  // first multiple of a block behind the one before it; the bytes in between are then written as they are.
  absl::StatusOr<std::vector<Extent>> Append(std::span<const std::string_view> contents)
      ABSL_LOCKS_EXCLUDED(append_mu_, sync_mu_);
  absl::Status Sync() ABSL_LOCKS_EXCLUDED(append_mu_, sync_mu_);
  // Everything appended so far is synced, and lies in files that get no more, when it returns OK.
  absl::Status Seal() ABSL_LOCKS_EXCLUDED(append_mu_, sync_mu_);
  // Everything appended so far, as the segments of another data directory.
  absl::Status LinkInto(const std::string& directory) ABSL_LOCKS_EXCLUDED(append_mu_, sync_mu_);

  const SegmentDirectory& directory() const { return *directory_; }
  SegmentDirectory& directory() { return *directory_; }

 private:
  struct File;

  explicit Segments(SegmentsOptions options);
  // `contents` with checksums, whose extents it completes.
  absl::Status AppendOnce(std::span<const std::string_view> contents, std::vector<Extent>& extents)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mu_);
  absl::Status Write(File& file, std::string_view content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mu_);
  void CloseOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(append_mu_);
  // The number of the first file that what follows can be in.
  uint32_t BeginNew() ABSL_LOCKS_EXCLUDED(append_mu_);

  const SegmentsOptions options_;
  std::unique_ptr<SegmentDirectory> directory_;
  absl::Mutex sync_mu_ ABSL_ACQUIRED_BEFORE(append_mu_);  // held while files are synced
  absl::Status lost_ ABSL_GUARDED_BY(sync_mu_);
  absl::Mutex append_mu_;  // held while an append is written
  bool direct_ ABSL_GUARDED_BY(append_mu_) = true;
  std::shared_ptr<File> open_ ABSL_GUARDED_BY(append_mu_);
  std::vector<std::shared_ptr<File>> unsynced_ ABSL_GUARDED_BY(append_mu_);
  BlockBuffer buffer_ ABSL_GUARDED_BY(append_mu_);
};

}  // namespace msprobe::server
