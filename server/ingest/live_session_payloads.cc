// How a LiveSession takes payloads.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "server/format/cat.h"
#include "server/ingest/live_session.h"
#include "server/metrics/log.h"

namespace msprobe::server {

bool LiveSession::HasPending(uint32_t step) const {
  for (const auto& [hash, pending] : pending_) {
    if (std::count(pending.row.steps().begin(), pending.row.steps().end(), step) > 0) return true;
  }
  return false;
}

absl::StatusOr<v1::PayloadVerdict> LiveSession::AddPayload(uint64_t user, const v1::PayloadChunk& chunk,
                                                           std::string_view content) {
  const std::string& hash = chunk.hash();
  if (hash.size() != kIdBytes) {
    return absl::InvalidArgumentError(Cat("payload_chunk.hash has ", hash.size(), " bytes, not ", kIdBytes));
  }
  if (content.size() > context_.max_chunk_bytes) {
    return absl::InvalidArgumentError(
        Cat("payload_chunk.content has ", content.size(), " bytes, at most ", context_.max_chunk_bytes));
  }
  v1::PayloadVerdict verdict;
  Durable durable;
  uint64_t through;
  {
    absl::MutexLock lock(&mu_);
    if (absl::Status status = CheckUser(user); !status.ok()) return status;
    auto found = pending_.find(hash);
    if (found == pending_.end()) {
      auto stored = context_.store->database().Find<storage::PayloadRow>(PayloadKey(hash));
      if (!stored.ok()) return stored.status();
      if (!stored->has_value()) {
        return absl::InvalidArgumentError(Cat("payload ", Hex(hash), " was not announced by this session"));
      }
      if (chunk.last()) verdict.add_stored(hash);
      return verdict;
    }
    PendingPayload& pending = found->second;
    if (absl::Status status = context_.store->database().Writable(); !status.ok()) return status;
    ChangeSet changes;
    if (chunk.offset() == 0) {
      if (pending.upload == nullptr && uploads_ >= context_.max_uploads) {
        return absl::ResourceExhaustedError(Cat("more than ", context_.max_uploads, " payloads under way at once"));
      }
      if (pending.upload == nullptr) ++uploads_;
      pending.upload = std::make_unique<PayloadUpload>(pending.row.size());
      if (std::exchange(pending.begun, true)) changes.DeleteChunks(ChunkKey::Prefix(hash, row_.run(), row_.epoch()));
    }
    if (pending.upload == nullptr) {
      return absl::InvalidArgumentError(
          Cat("payload_chunk.offset of ", Hex(hash), " is ", chunk.offset(), ", the next byte is 0"));
    }
    const uint32_t index = pending.upload->chunks();
    if (absl::Status status = pending.upload->Add(chunk.offset(), content); !status.ok()) return status;
    context_.metrics->Add(Metric::kIngestBytes, static_cast<double>(content.size()), {"payload"});
    changes.PutChunk(ChunkKey{hash, row_.run(), row_.epoch(), index}.Encode(), content);
    if (!chunk.last()) {
      if (absl::Status status = context_.store->database().Write(changes); !status.ok()) return status;
      return verdict;
    }

    const std::unique_ptr<PayloadUpload> whole = std::exchange(pending.upload, nullptr);
    const PayloadUpload& upload = *whole;
    --uploads_;
    if (upload.received() != pending.row.size() || upload.Hash() != hash) {
      ChangeSet undo;
      undo.DeleteChunks(ChunkKey::Prefix(hash, row_.run(), row_.epoch()));
      if (absl::Status status = context_.store->database().Write(undo); !status.ok()) return status;
      context_.metrics->Add(Metric::kPayloadsRefused, 1);
      return absl::DataLossError(Cat("payload ", Hex(hash), " came with ", upload.received(), " of ",
                                     pending.row.size(), " bytes and the hash ", Hex(upload.Hash())));
    }
    changes.PutMeta(PayloadKey(hash), RowOf(upload));
    if (absl::Status status = FinishPayloads({&hash, 1}, std::move(changes), durable); !status.ok()) return status;
    context_.metrics->Add(Metric::kPayloadBytes, static_cast<double>(upload.received()));
    through = row_.watermark();
  }
  verdict.add_stored(hash);
  // Otherwise the sync for the answer is enough.
  if (!durable.finished.empty()) WhenDurable(through, std::move(durable));
  if (context_.payload_arrived) context_.payload_arrived(hash);
  return verdict;
}

absl::StatusOr<size_t> LiveSession::AddWhole(uint64_t user, std::span<const Session::WholePayload> payloads,
                                             v1::PayloadVerdict& verdict) {
  std::vector<std::string> hashes;
  size_t stored = 0;
  uint64_t bytes = 0;
  Durable durable;
  uint64_t through;
  {
    absl::MutexLock lock(&mu_);
    if (absl::Status status = CheckUser(user); !status.ok()) return status;
    ChangeSet changes;
    for (const auto& [hash, content] : payloads) {
      std::string key(hash);
      const auto found = pending_.find(key);
      if (found == pending_.end()) {
        const auto row = context_.store->database().Find<storage::PayloadRow>(PayloadKey(key));
        if (!row.ok() || !row->has_value()) break;
        verdict.add_stored(std::move(key));
        ++stored;
        continue;
      }
      PayloadUpload upload(found->second.row.size());
      if (found->second.begun || !upload.Add(0, content).ok() || upload.Hash() != key) break;
      found->second.begun = true;
      changes.PutChunk(ChunkKey{key, row_.run(), row_.epoch(), 0}.Encode(), content);
      changes.PutMeta(PayloadKey(key), RowOf(upload));
      hashes.push_back(std::move(key));
      bytes += content.size();
    }
    if (hashes.empty()) return stored;
    if (absl::Status status = context_.store->database().Writable(); !status.ok()) return status;
    if (absl::Status status = FinishPayloads(hashes, std::move(changes), durable); !status.ok()) return status;
    context_.metrics->Add(Metric::kIngestBytes, static_cast<double>(bytes), {"payload"});
    context_.metrics->Add(Metric::kPayloadBytes, static_cast<double>(bytes));
    through = row_.watermark();
  }
  if (!durable.finished.empty()) WhenDurable(through, std::move(durable));
  for (const std::string& hash : hashes) {
    verdict.add_stored(hash);
    if (context_.payload_arrived) context_.payload_arrived(hash);
  }
  return stored + hashes.size();
}

storage::PayloadRow LiveSession::RowOf(const PayloadUpload& upload) const {
  storage::PayloadRow row;
  row.set_size(upload.received());
  row.set_chunks(upload.chunks());
  row.set_chunk_bytes(upload.chunk_bytes());
  row.set_run(row_.run());
  row.set_epoch(row_.epoch());
  return row;
}

absl::Status LiveSession::FinishPayloads(std::span<const std::string> hashes, ChangeSet changes, Durable& durable) {
  std::vector<PendingPayload> finished;
  std::set<uint32_t> steps;
  for (const std::string& hash : hashes) {
    const auto found = pending_.find(hash);
    steps.insert(found->second.row.steps().begin(), found->second.row.steps().end());
    changes.Delete(Family::kMeta, PendingKey(row_.session(), hash));
    finished.push_back(std::move(found->second));
    pending_.erase(found);
  }
  std::map<uint32_t, storage::StepRow> completed;
  for (uint32_t step : steps) {
    auto open = steps_.find(step);
    if (open == steps_.end() || !open->second.row.ended() || HasPending(step)) continue;
    storage::StepRow& complete = completed[step] = open->second.row;
    complete.set_state(v1::StepSummary::COMPLETE);
    changes.PutMeta(KeyOf(step).Encode(), complete);
    changes.Put(Family::kMeta, KeyOf(step).Encode(MetaSpace::kUntiled), "");
    durable.finished.emplace_back(step, v1::StepSummary::COMPLETE);
  }
  if (absl::Status status = context_.store->database().Write(changes); !status.ok()) {
    for (size_t i = 0; i < hashes.size(); ++i) pending_[hashes[i]] = std::move(finished[i]);
    durable = {};
    return status;
  }
  for (const auto& [step, complete] : completed) steps_.erase(step);
  return absl::OkStatus();
}

absl::Status LiveSession::ResolvePayload(const std::string& hash) {
  Durable durable;
  uint64_t through;
  {
    absl::MutexLock lock(&mu_);
    auto found = pending_.find(hash);
    if (found == pending_.end()) return absl::OkStatus();
    if (found->second.upload != nullptr) --uploads_;
    ChangeSet changes;
    changes.DeleteChunks(ChunkKey::Prefix(hash, row_.run(), row_.epoch()));
    if (absl::Status status = FinishPayloads({&hash, 1}, std::move(changes), durable); !status.ok()) return status;
    durable.stored.push_back(hash);
    through = row_.watermark();
  }
  WhenDurable(through, std::move(durable));
  return absl::OkStatus();
}

}  // namespace msprobe::server
