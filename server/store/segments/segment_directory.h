#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/format/storage/extent.h"

namespace rocksdb {
class Env;
class RandomAccessFile;
class WritableFile;
}  // namespace rocksdb

namespace msprobe::server {

// The files of segments: which there are, what state each is in, and reading them.
//
// 1. A file is named NUMBER.open until Seal; from then on it is NUMBER.segment, and never changes. So the name says
//    after any crash whether all of its bytes are surely there.
// 2. A new file's name is durable before Create returns: a file that is missing was taken away.
// 3. What Open finds open is synced, and has to be looked at (unproven) before anything durable refers to it anew.
// Threads: every method from any thread. `env` is borrowed.
class SegmentDirectory {
 public:
  struct Segment {
    uint32_t number = 0;
    uint64_t bytes = 0;
    bool sealed = false;
  };

  static absl::StatusOr<std::unique_ptr<SegmentDirectory>> Open(std::string path, rocksdb::Env* env);
  ~SegmentDirectory();

  struct Created {
    uint32_t number = 0;
    std::unique_ptr<rocksdb::WritableFile> file;
  };
  // `direct`: without the page cache, where the file system can.
  absl::StatusOr<Created> Create(bool direct);
  void Grow(uint32_t number, uint64_t bytes);
  // All of its bytes are synced, and no more will come.
  absl::Status Seal(uint32_t number);

  // Past the page cache is what nobody reads again soon: a page for each 4 KiB costs more than the disk's own way into
  // memory, and drives out pages of the program that is being watched.
  enum class PageCache : uint8_t { kUsed, kPassed };
  // The bytes of the extent, verified. NotFound: there is no such segment. DataLoss: they are others, or too few.
  absl::Status Read(const Extent& extent, std::string& content, PageCache cache = PageCache::kPassed) const;
  bool IsUnproven(uint32_t number) const;
  // Seals all that was found open.
  absl::Status SealUnproven();

  absl::Status Delete(const std::vector<uint32_t>& numbers);
  // Those with smaller numbers, into a directory that it makes: as links, or copies where those cannot be.
  absl::Status LinkInto(const std::string& directory, uint32_t below) const;
  std::vector<Segment> segments() const;
  uint64_t bytes() const;
  uint32_t next() const;  // the number of the one that Create makes next

 private:
  struct State {
    uint64_t bytes = 0;
    bool sealed = false;
    bool unproven = false;
  };
  using Opened = std::shared_ptr<rocksdb::RandomAccessFile>;

  SegmentDirectory(std::string path, rocksdb::Env* env) : path_(std::move(path)), env_(env) {}
  absl::Status List();
  absl::Status SyncNames() const;
  std::string PathOf(uint32_t number, bool sealed) const;
  absl::StatusOr<Opened> OpenToRead(uint32_t number, PageCache cache) const;
  absl::Status Copy(const std::string& from, const std::string& to) const;

  const std::string path_;
  rocksdb::Env* const env_;
  mutable absl::Mutex mu_;
  std::map<uint32_t, State> states_ ABSL_GUARDED_BY(mu_);
  uint32_t next_ ABSL_GUARDED_BY(mu_) = 1;
  struct Reader {
    uint32_t number = 0;
    PageCache cache = PageCache::kUsed;
    Opened file;
  };
  mutable std::vector<Reader> readers_ ABSL_GUARDED_BY(mu_);  // the latest used last
};

}  // namespace msprobe::server
