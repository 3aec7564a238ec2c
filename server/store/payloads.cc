#include "server/store/payloads.h"

#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/store/rocks.h"

namespace msprobe::server {

absl::Status Payloads::Read(std::string_view hash,
                            absl::FunctionRef<absl::Status(std::string_view chunk)> visit) const {
  auto row = database_->Find<storage::PayloadRow>(PayloadKey(hash));
  if (!row.ok()) return row.status();
  if (!row->has_value())
    return absl::NotFoundError(
        Cat("payload ", Hex(hash), " never arrived, or has gone with the passed check of its call"));
  for (uint32_t index = 0; index < (*row)->chunks(); ++index) {
    auto chunk = ReadChunk(ChunkKey{std::string(hash), (*row)->run(), (*row)->epoch(), index}.Encode(),
                           SegmentDirectory::PageCache::kPassed);
    if (!chunk.ok()) return chunk.status();
    if (!chunk->has_value()) return absl::DataLossError(Cat("payload ", Hex(hash), " lacks its chunk ", index));
    if (absl::Status status = visit(**chunk); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Payloads::ReadRange(std::string_view hash, uint64_t offset, uint64_t size,
                                 absl::FunctionRef<absl::Status(uint64_t offset, std::string_view chunk)> visit) const {
  auto row = database_->Find<storage::PayloadRow>(PayloadKey(hash));
  if (!row.ok()) return row.status();
  if (!row->has_value())
    return absl::NotFoundError(
        Cat("payload ", Hex(hash), " never arrived, or has gone with the passed check of its call"));
  const storage::PayloadRow& payload = **row;
  uint32_t index = payload.chunk_bytes() == 0 ? 0 : static_cast<uint32_t>(offset / payload.chunk_bytes());
  uint64_t at = uint64_t{index} * payload.chunk_bytes();
  for (; index < payload.chunks() && at < offset + size; ++index) {
    auto chunk = ReadChunk(ChunkKey{std::string(hash), payload.run(), payload.epoch(), index}.Encode(),
                           SegmentDirectory::PageCache::kUsed);
    if (!chunk.ok()) return chunk.status();
    if (!chunk->has_value()) return absl::DataLossError(Cat("payload ", Hex(hash), " lacks its chunk ", index));
    const uint64_t end = at + (*chunk)->size();
    if (end > offset) {
      if (absl::Status status = visit(at, **chunk); !status.ok()) return status;
    }
    at = end;
  }
  if (at < offset + size) return absl::DataLossError(Cat("payload ", Hex(hash), " ends at byte ", at));
  return absl::OkStatus();
}

absl::StatusOr<bool> Payloads::Has(std::string_view hash) const {
  auto stored = database_->Get(Family::kMeta, PayloadKey(hash));
  if (!stored.ok()) return stored.status();
  return stored->has_value();
}

absl::StatusOr<uint64_t> Payloads::ReferencedBytes(uint32_t run) const {
  uint64_t bytes = 0;
  absl::Status status = database_->ForEach(Family::kMeta, MetaPrefix(MetaSpace::kReference, run),
                                           [&](std::string_view, std::string_view value) {
                                             auto row = DecodeAs<storage::ReferenceRow>(value);
                                             if (row.ok()) bytes += row->size();
                                             return row.status();
                                           });
  if (!status.ok()) return status;
  return bytes;
}

absl::StatusOr<uint64_t> Payloads::AddRunDeletion(uint32_t run, const std::vector<storage::SessionRow>& sessions,
                                                  ChangeSet& changes) const {
  for (const storage::SessionRow& session : sessions) {
    const std::string pending = MetaPrefix(MetaSpace::kPending, session.session());
    absl::Status status = database_->ForEach(Family::kMeta, pending, [&](std::string_view key, std::string_view) {
      changes.DeleteChunks(ChunkKey::Prefix(key.substr(1 + kIdBytes), session.run(), session.epoch()));
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    changes.DeletePrefix(Family::kMeta, pending);
  }
  uint64_t freed = 0;
  absl::Status status = database_->ForEach(Family::kMeta, MetaPrefix(MetaSpace::kReference, run),
                                           [&](std::string_view key, std::string_view) {
                                             auto bytes = AddDereference(run, key.substr(5), changes);
                                             if (bytes.ok()) freed += *bytes;
                                             return bytes.status();
                                           });
  if (!status.ok()) return status;
  for (const MetaSpace space : {MetaSpace::kHold, MetaSpace::kHolder}) {
    changes.DeletePrefix(Family::kMeta, MetaPrefix(space, run));
  }
  return freed;
}

absl::StatusOr<uint64_t> Payloads::AddDereference(uint32_t run, std::string_view hash, ChangeSet& changes) const {
  changes.Delete(Family::kMeta, ReferenceKey(run, hash));
  changes.Delete(Family::kMeta, ReferrerKey(hash, run));
  bool elsewhere = false;
  absl::Status status = database_->ForEach(Family::kMeta, MetaPrefix(MetaSpace::kReferrer, hash),
                                           [&](std::string_view other, std::string_view) {
                                             elsewhere |= ReadU32(other, 1 + kIdBytes) != run;
                                             return absl::OkStatus();
                                           });
  if (!status.ok()) return status;
  if (elsewhere) return 0;
  auto payload = database_->Find<storage::PayloadRow>(PayloadKey(hash));
  if (!payload.ok()) return payload.status();
  if (!payload->has_value()) return 0;
  changes.Delete(Family::kMeta, PayloadKey(hash));
  changes.DeleteChunks(ChunkKey::Prefix(hash, (*payload)->run(), (*payload)->epoch()));
  return (*payload)->size();
}

void Payloads::AddHold(const storage::SessionRow& session, uint32_t step, std::string_view hash, ChangeSet& changes) {
  changes.Put(Family::kMeta, HoldKey(session.run(), session.epoch(), step, hash), "");
  changes.Put(Family::kMeta, HolderKey(session.run(), hash, session.epoch(), step), "");
}

absl::StatusOr<std::set<std::pair<uint32_t, uint32_t>>> Payloads::HoldingSteps(uint32_t run) const {
  std::set<std::pair<uint32_t, uint32_t>> steps;
  absl::Status status =
      database_->ForEach(Family::kMeta, MetaPrefix(MetaSpace::kHold, run), [&](std::string_view key, std::string_view) {
        steps.emplace(ReadU32(key, 5), ReadU32(key, 9));
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return steps;
}

absl::StatusOr<uint64_t> Payloads::AddRelease(const storage::SessionRow& session, uint32_t step,
                                              absl::FunctionRef<bool(std::string_view hash)> needed,
                                              ChangeSet& changes) const {
  const uint32_t run = session.run();
  uint64_t freed = 0;
  absl::Status status = database_->ForEach(
      Family::kMeta, HoldKey(run, session.epoch(), step, ""), [&](std::string_view key, std::string_view) {
        const std::string_view hash = key.substr(13);
        changes.Delete(Family::kMeta, std::string(key));
        if (needed(hash)) return absl::OkStatus();
        auto here = Has(hash);
        if (!here.ok() || !*here) return here.status();
        const std::string mine = HolderKey(run, hash, session.epoch(), step);
        changes.Delete(Family::kMeta, mine);
        bool held = false;
        absl::Status others =
            database_->ForEach(Family::kMeta, HolderPrefix(run, hash), [&](std::string_view other, std::string_view) {
              held |= other != mine;
              return absl::OkStatus();
            });
        if (!others.ok() || held) return others;
        auto bytes = AddDereference(run, hash, changes);
        if (bytes.ok()) freed += *bytes;
        return bytes.status();
      });
  if (!status.ok()) return status;
  return freed;
}

absl::StatusOr<std::optional<std::string>> Payloads::ReadChunk(const std::string& key,
                                                               SegmentDirectory::PageCache cache) const {
  std::optional<std::string> before;
  while (true) {
    auto row = database_->Get(Family::kExtents, key);
    if (!row.ok()) return row.status();
    if (!row->has_value()) return database_->Get(Family::kPayloads, key);
    auto extent = Extent::Decode(**row);
    if (!extent.ok()) return extent.status();
    std::string content;
    absl::Status status = database_->rocks().segments->directory().Read(*extent, content, cache);
    if (status.ok()) return std::optional<std::string>(std::move(content));
    // Its segment went since the row was read where the row is another now.
    if (!absl::IsNotFound(status)) return status;
    if (before == **row) return absl::DataLossError(status.message());
    before = **row;
  }
}

}  // namespace msprobe::server
