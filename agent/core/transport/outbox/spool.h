#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/core/at_fork.h"
#include "agent/core/payload/session_origin.pb.h"

namespace msprobe::core {

// Files for the batches and payloads that memory has no room for. Entries are appended, read back by their place, and
// released in any order.
//
// A file, called a segment, holds entries one behind the other, each
//   magic "MSPL" | crc32 of everything after this field | length u64 | key length u64 | key | content   (little-endian)
// A crash may leave an entry that is not whole at the end; ReadSegment recognises it and stops there. The first entry
// of each segment, under the key "origin", says whose it is (a serialized SessionOrigin; earlier versions wrote its
// Hello, under the key "session"). A segment is locked (flock) while its process lives, and deleted when all its
// entries are released. The quota bounds the size of all segments together.
//
// Threads: one.
class Spool {
 public:
  struct Place {
    uint32_t segment = 0;
    uint64_t offset = 0;
    uint64_t size = 0;  // of the whole entry
  };
  struct Entry {
    std::string key, content;
  };

  // Nothing is made before the first Append. Segments are `directory`/`name`-N.spool.
  Spool(std::string directory, std::string name, uint64_t quota_bytes, std::string origin = {});
  Spool(Spool&& other) noexcept;
  ~Spool();  // deletes the segments, unless Keep was called

  // What would keep Append from writing, as far as that shows without making anything.
  absl::Status Check() const;

  // ResourceExhausted: the quota or the disk is full, and the spool is as before. A tenth of the disk is left free, but
  // no more than 64 MiB.
  absl::StatusOr<Place> Append(std::string_view key, std::string_view content);
  absl::StatusOr<Entry> Read(const Place& place) const;
  // Reads the whole entry, a piece at a time, against its checksum. DataLoss: it is not what was appended.
  absl::Status Verify(const Place& place) const;
  // Up to `size` bytes of the entry's content from `from` on. Does not look at the checksum.
  struct Part {
    std::string bytes;
    bool last = false;
  };
  absl::StatusOr<Part> ReadPart(const Place& place, uint64_t from, size_t size) const;
  void Release(const Place& place);
  // The last Append failed, and nothing has been released since.
  bool full() const { return full_; }
  // Of the last Append that failed.
  const absl::Status& failure() const { return failure_; }

  // From now on entries that are not released stay on disk, for a later process to take over.
  void Keep() { keep_ = true; }

  // An entry that was found on disk.
  struct Found {
    std::string key;
    Place place;
  };
  struct Left;
  // The spools that have segments in `directory`. Their processes may be alive.
  static std::vector<std::string> Names(const std::string& directory);
  // The session that a file of such a directory is of; empty: it is no spool's.
  static std::string NameOf(const std::string& file);
  // The spool of a process that is gone. Unavailable: it is in use. PermissionDenied: it is another user's. DataLoss:
  // the spool does not name its process.
  static absl::StatusOr<Left> TakeOver(const std::string& directory, const std::string& name);
  // The process that the spool belongs to, also while it is alive. NotFound, DataLoss: the spool does not say.
  static absl::StatusOr<SessionOrigin> ReadOrigin(const std::string& directory, const std::string& name);

  uint64_t held_bytes() const { return held_bytes_; }
  const std::string& directory() const { return directory_; }

  // The entries of a segment up to its end, or up to the first damaged one.
  static absl::StatusOr<std::vector<Entry>> ReadSegment(const std::string& path);

 private:
  struct Segment {
    std::unique_ptr<OwnDescriptor> file;
    std::string path;
    uint64_t size = 0;
    uint64_t live = 0;  // entries not released
  };

  absl::Status OpenSegment();
  absl::StatusOr<Place> TryAppend(std::string_view key, std::string_view content);
  // Takes over the segment at `path`, and adds its whole entries.
  absl::Status Adopt(uint32_t number, const std::string& path, Left* left);
  void Remove(std::map<uint32_t, Segment>::iterator segment);

  const std::string directory_;
  const std::string name_;
  const uint64_t quota_;
  const uint64_t segment_bytes_;  // a segment of this size is followed by a new one
  const std::string origin_;
  bool keep_ = false;
  bool full_ = false;
  absl::Status failure_;
  std::map<uint32_t, Segment> segments_;
  uint32_t next_segment_ = 0;
  uint64_t held_bytes_ = 0;
};

struct Spool::Left {
  Spool spool;
  SessionOrigin origin;
  std::vector<Found> entries;  // in the order they were appended
};

}  // namespace msprobe::core
