#include "server/store/segments/segment_collection.h"

#include <rocksdb/write_batch.h>

#include <map>
#include <set>

#include "server/store/rocks.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kMovedAtOnce = uint64_t{8} << 20;

struct Move {
  std::string key;
  std::string from;
  std::string to;
};

// Moves the extents of the segments in `thin` to the segment that is open. Where an extent cannot be read, it takes its
// segment out of `thin`.
class SegmentMover {
 public:
  SegmentMover(Database* database, std::set<uint32_t>* thin) : database_(database), thin_(thin) {}

  absl::Status Take(std::string_view key, std::string_view value, const Extent& extent) {
    Segments& segments = *database_->rocks().segments;
    std::string content;
    if (absl::Status status = segments.directory().Read(extent, content); !status.ok()) {
      thin_->erase(extent.segment);
      return absl::OkStatus();
    }
    auto moved = segments.Append(content);
    if (!moved.ok()) {
      database_->rocks().disk->Failed(moved.status());
      return moved.status();
    }
    moves_.push_back({std::string(key), std::string(value), moved->Encode()});
    bytes_ += extent.padded_size();
    return bytes_ < kMovedAtOnce ? absl::OkStatus() : Commit();
  }

  // Rows that changed since they were read keep what they say.
  absl::Status Commit() {
    Rocks& rocks = database_->rocks();
    absl::MutexLock chunks(&rocks.chunk_mutex);
    rocksdb::WriteBatch batch;
    for (const Move& move : moves_) {
      auto now = database_->Get(Family::kExtents, move.key);
      if (!now.ok()) return now.status();
      if (*now != move.from) continue;
      rocksdb::Status status = batch.Put(rocks.Handle(Family::kExtents), move.key, move.to);
      if (!status.ok()) return FromRocks(status);
    }
    moves_.clear();
    bytes_ = 0;
    return FromRocks(rocks.db->Write(rocksdb::WriteOptions(), &batch));
  }

 private:
  Database* const database_;
  std::set<uint32_t>* const thin_;
  std::vector<Move> moves_;
  uint64_t bytes_ = 0;
};

}  // namespace

absl::Status CollectSegments(Database& database) {
  Rocks& rocks = database.rocks();
  SegmentDirectory& directory = rocks.segments->directory();
  std::map<uint32_t, SegmentDirectory::Segment> sealed;
  {
    absl::MutexLock chunks(&rocks.chunk_mutex);
    for (const SegmentDirectory::Segment& segment : directory.segments()) {
      if (segment.sealed) sealed[segment.number] = segment;
    }
  }
  if (sealed.empty()) return absl::OkStatus();
  std::map<uint32_t, uint64_t> live;
  auto for_each = [&](absl::FunctionRef<absl::Status(std::string_view, std::string_view, const Extent&)> visit) {
    return database.ForEach(Family::kExtents, "", [&](std::string_view key, std::string_view value) {
      auto extent = Extent::Decode(value);
      return extent.ok() ? visit(key, value, *extent) : extent.status();
    });
  };
  absl::Status status = for_each([&](std::string_view, std::string_view, const Extent& extent) {
    live[extent.segment] += extent.padded_size();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;

  std::vector<uint32_t> dead;
  std::set<uint32_t> thin;
  for (const auto& [number, segment] : sealed) {
    if (live[number] == 0) {
      dead.push_back(number);
    } else if (live[number] < segment.bytes / 2) {
      thin.insert(number);
    }
  }
  if (!thin.empty() && database.Writable().ok()) {
    const std::set<uint32_t> moving = thin;
    SegmentMover mover(&database, &thin);
    status = for_each([&](std::string_view key, std::string_view value, const Extent& extent) {
      return moving.contains(extent.segment) ? mover.Take(key, value, extent) : absl::OkStatus();
    });
    if (status.ok()) status = mover.Commit();
    if (!status.ok()) return status;
    dead.insert(dead.end(), thin.begin(), thin.end());
  }
  if (dead.empty()) return absl::OkStatus();
  // A row that is back after a crash would find its file gone.
  if (status = rocks.SyncAll(); !status.ok()) return status;
  return directory.Delete(dead);
}

}  // namespace msprobe::server
