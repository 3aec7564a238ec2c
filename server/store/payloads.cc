// Payloads of the store: reading them, and deleting what no run refers to.

#include "server/format/cat.h"
#include "server/store/store.h"

namespace msprobe::server {

absl::Status Store::ReadPayload(std::string_view hash,
                                absl::FunctionRef<absl::Status(std::string_view chunk)> visit) const {
  auto row = Find<storage::PayloadRow>(PayloadKey(hash));
  if (!row.ok()) return row.status();
  if (!row->has_value()) return absl::NotFoundError(Cat("payload ", Hex(hash), " never arrived"));
  for (uint32_t index = 0; index < (*row)->chunks(); ++index) {
    auto chunk = ReadChunk(ChunkKey{std::string(hash), (*row)->run(), (*row)->epoch(), index}.Encode());
    if (!chunk.ok()) return chunk.status();
    if (!chunk->has_value()) return absl::DataLossError(Cat("payload ", Hex(hash), " lacks its chunk ", index));
    if (absl::Status status = visit(**chunk); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Store::ReadPayloadRange(
    std::string_view hash, uint64_t offset, uint64_t size,
    absl::FunctionRef<absl::Status(uint64_t offset, std::string_view chunk)> visit) const {
  auto row = Find<storage::PayloadRow>(PayloadKey(hash));
  if (!row.ok()) return row.status();
  if (!row->has_value()) return absl::NotFoundError(Cat("payload ", Hex(hash), " never arrived"));
  const storage::PayloadRow& payload = **row;
  uint32_t index = payload.chunk_bytes() == 0 ? 0 : static_cast<uint32_t>(offset / payload.chunk_bytes());
  uint64_t at = uint64_t{index} * payload.chunk_bytes();
  for (; index < payload.chunks() && at < offset + size; ++index) {
    auto chunk = ReadChunk(ChunkKey{std::string(hash), payload.run(), payload.epoch(), index}.Encode());
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

absl::StatusOr<uint64_t> Store::ReferencedBytes(uint32_t run) const {
  uint64_t bytes = 0;
  absl::Status status =
      ForEach(Family::kMeta, MetaPrefix(MetaSpace::kReference, run), [&](std::string_view, std::string_view value) {
        auto row = DecodeAs<storage::ReferenceRow>(value);
        if (row.ok()) bytes += row->size();
        return row.status();
      });
  if (!status.ok()) return status;
  return bytes;
}

absl::StatusOr<Store::Deleted> Store::DeleteRun(const std::string& name) {
  absl::MutexLock deletion(&deletion_mutex_);
  absl::MutexLock registry(&registry_mutex_);
  absl::ReaderMutexLock tiling(&tiling_mutex_);
  ++deletions_;
  auto run = FindRun(name);
  if (!run.ok()) return run.status();
  auto sessions = Sessions(run->number());
  if (!sessions.ok()) return sessions.status();
  auto steps = Steps(run->number());
  if (!steps.ok()) return steps.status();

  Deleted deleted;
  ChangeSet changes;
  for (const storage::SessionRow& session : *sessions) {
    if (session.state() == storage::SessionRow::OPEN) {
      return absl::FailedPreconditionError(Cat("run \"", name, "\" still has an open session (process ",
                                               session.hello().process_id(), " on ", session.hello().host(), ")"));
    }
    const std::string pending = MetaPrefix(MetaSpace::kPending, session.session());
    absl::Status status = ForEach(Family::kMeta, pending, [&](std::string_view key, std::string_view) {
      changes.DeleteChunks(ChunkKey::Prefix(key.substr(1 + kIdBytes), session.run(), session.epoch()));
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    changes.DeletePrefix(Family::kMeta, pending);
    changes.Delete(Family::kMeta, SessionKey(session.session()));
  }
  for (const Step& step : *steps) deleted.row_bytes += step.second.row_bytes();

  absl::Status status = ForEach(
      Family::kMeta, MetaPrefix(MetaSpace::kReference, run->number()), [&](std::string_view key, std::string_view) {
        const std::string_view hash = key.substr(5);
        changes.Delete(Family::kMeta, std::string(key));
        changes.Delete(Family::kMeta, ReferrerKey(hash, run->number()));
        bool elsewhere = false;
        absl::Status referrers = ForEach(Family::kMeta, MetaPrefix(MetaSpace::kReferrer, hash),
                                         [&](std::string_view other, std::string_view) {
                                           elsewhere |= ReadU32(other, 1 + kIdBytes) != run->number();
                                           return absl::OkStatus();
                                         });
        if (!referrers.ok() || elsewhere) return referrers;
        auto payload = Find<storage::PayloadRow>(PayloadKey(hash));
        if (!payload.ok()) return payload.status();
        if (payload->has_value()) {
          deleted.payload_bytes += (*payload)->size();
          changes.Delete(Family::kMeta, PayloadKey(hash));
          changes.DeleteChunks(ChunkKey::Prefix(hash, (*payload)->run(), (*payload)->epoch()));
        }
        return absl::OkStatus();
      });
  if (!status.ok()) return status;

  std::string rows;
  AppendU32(rows, run->number());
  changes.DeletePrefix(Family::kRows, rows);
  changes.DeletePrefix(Family::kTiles, rows);
  for (MetaSpace space : {MetaSpace::kDefinition, MetaSpace::kStep, MetaSpace::kFault, MetaSpace::kEpoch,
                          MetaSpace::kUntiled, MetaSpace::kTiled, MetaSpace::kTileSet}) {
    changes.DeletePrefix(Family::kMeta, MetaPrefix(space, run->number()));
  }
  changes.Delete(Family::kMeta, RunKey(run->number()));
  changes.Delete(Family::kMeta, RunByNameKey(name));
  if (status = Write(changes); !status.ok()) return status;
  ++runs_deleted_;
  if (options_.on_run_deleted) options_.on_run_deleted(name);
  return deleted;
}

}  // namespace msprobe::server
