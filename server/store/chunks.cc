// Chunks of payloads: which lie in segments, and which in RocksDB.

#include <rocksdb/write_batch.h>

#include "server/format/cat.h"
#include "server/store/database.h"
#include "server/store/store.h"

namespace msprobe::server {

absl::StatusOr<std::vector<Extent>> Store::Database::AppendToSegments(std::span<const std::string_view> contents) {
  if (contents.empty()) return std::vector<Extent>();
  absl::StatusOr<std::vector<Extent>> extents = segments->Append(contents);
  if (!extents.ok()) disk->Failed(extents.status());
  return extents;
}

absl::Status Store::Database::AddChunkDeletion(const std::string& prefix, rocksdb::WriteBatch& batch) {
  // Chunks are stored in order: without the first there is none. It is asked for because a range that is deleted costs
  // each later read of its family, and most uploads are new.
  std::string first = prefix;
  AppendU32(first, 0);
  bool stored = false;
  for (Family family : {Family::kExtents, Family::kPayloads}) {
    std::string value;
    stored |= db->KeyMayExist(rocksdb::ReadOptions(), Handle(family), first, &value);
  }
  if (!stored) return absl::OkStatus();
  for (Family family : {Family::kExtents, Family::kPayloads}) {
    rocksdb::Status status = batch.DeleteRange(Handle(family), prefix, PrefixEnd(prefix));
    if (!status.ok()) return FromRocks(status);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> Store::ReadChunk(const std::string& key) const {
  std::optional<std::string> before;
  while (true) {
    auto row = Get(Family::kExtents, key);
    if (!row.ok()) return row.status();
    if (!row->has_value()) return Get(Family::kPayloads, key);
    auto extent = Extent::Decode(**row);
    if (!extent.ok()) return extent.status();
    std::string content;
    absl::Status status = database_->segments->directory().Read(*extent, content);
    if (status.ok()) return std::optional<std::string>(std::move(content));
    // Its segment went since the row was read where the row is another now.
    if (!absl::IsNotFound(status)) return status;
    if (before == **row) return absl::DataLossError(status.message());
    before = **row;
  }
}

}  // namespace msprobe::server
