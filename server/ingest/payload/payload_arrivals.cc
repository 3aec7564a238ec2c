#include "server/ingest/payload/payload_arrivals.h"

#include <memory>
#include <set>

#include "server/format/cat.h"

namespace msprobe::server {

absl::StatusOr<PayloadArrivals::Arrived> PayloadArrivals::AddChunk(const v1::PayloadChunk& chunk,
                                                                   std::string_view content,
                                                                   v1::PayloadVerdict& verdict) {
  const std::string& hash = chunk.hash();
  Database& database = context_.store->database();
  auto found = state_.pending.find(hash);
  if (found == state_.pending.end()) {
    auto stored = database.Find<storage::PayloadRow>(PayloadKey(hash));
    if (!stored.ok()) return stored.status();
    // It came from another session meanwhile, and may have gone again where payloads go step by step.
    if (!stored->has_value() && !state_.row.holds_payloads()) {
      return absl::InvalidArgumentError(Cat("payload ", Hex(hash), " was not announced by this session"));
    }
    if (chunk.last()) verdict.add_stored(hash);
    return Arrived();
  }
  SessionState::PendingPayload& pending = found->second;
  if (absl::Status status = database.Writable(); !status.ok()) return status;
  const std::string chunks = ChunkKey::Prefix(hash, state_.row.run(), state_.row.epoch());
  ChangeSet changes;
  if (chunk.offset() == 0) {
    if (pending.upload == nullptr && state_.uploads >= context_.max_uploads) {
      return absl::ResourceExhaustedError(Cat("more than ", context_.max_uploads, " payloads under way at once"));
    }
    if (pending.upload == nullptr) ++state_.uploads;
    pending.upload = std::make_unique<PayloadUpload>(pending.row.size());
    if (std::exchange(pending.begun, true)) changes.DeleteChunks(chunks);
  }
  if (pending.upload == nullptr) {
    return absl::InvalidArgumentError(
        Cat("payload_chunk.offset of ", Hex(hash), " is ", chunk.offset(), ", the next byte is 0"));
  }
  const uint32_t index = pending.upload->chunks();
  if (absl::Status status = pending.upload->Add(chunk.offset(), content); !status.ok()) return status;
  context_.metrics->Add(Metric::kIngestBytes, static_cast<double>(content.size()), {"payload"});
  changes.PutChunk(ChunkKey{hash, state_.row.run(), state_.row.epoch(), index}.Encode(), content);
  if (!chunk.last()) {
    if (absl::Status status = database.Write(changes); !status.ok()) return status;
    return Arrived();
  }

  const std::unique_ptr<PayloadUpload> upload = std::exchange(pending.upload, nullptr);
  --state_.uploads;
  if (upload->received() != pending.row.size() || upload->Hash() != hash) {
    return Undo(hash, *upload, pending.row.size());
  }
  changes.PutMeta(PayloadKey(hash), RowOf(*upload));
  auto arrived = Finish({hash}, std::move(changes));
  if (arrived.ok()) context_.metrics->Add(Metric::kPayloadBytes, static_cast<double>(upload->received()));
  return arrived;
}

absl::Status PayloadArrivals::Undo(const std::string& hash, const PayloadUpload& upload, uint64_t size) {
  ChangeSet undo;
  undo.DeleteChunks(ChunkKey::Prefix(hash, state_.row.run(), state_.row.epoch()));
  if (absl::Status status = context_.store->database().Write(undo); !status.ok()) return status;
  context_.metrics->Add(Metric::kPayloadsRefused, 1);
  return absl::DataLossError(Cat("payload ", Hex(hash), " came with ", upload.received(), " of ", size,
                                 " bytes and the hash ", Hex(upload.Hash())));
}

absl::StatusOr<PayloadArrivals::Arrived> PayloadArrivals::AddWhole(std::span<const Session::WholePayload> payloads,
                                                                   v1::PayloadVerdict& verdict, size_t& taken) {
  Database& database = context_.store->database();
  std::vector<std::string> hashes;
  uint64_t bytes = 0;
  ChangeSet changes;
  taken = 0;
  for (const auto& [hash, content] : payloads) {
    std::string key(hash);
    const auto found = state_.pending.find(key);
    if (found == state_.pending.end()) {
      const auto row = database.Find<storage::PayloadRow>(PayloadKey(key));
      if (!row.ok() || !row->has_value()) break;
      verdict.add_stored(std::move(key));
      ++taken;
      continue;
    }
    PayloadUpload upload(found->second.row.size());
    if (found->second.begun || !upload.Add(0, content).ok() || upload.Hash() != key) break;
    found->second.begun = true;
    changes.PutChunk(ChunkKey{key, state_.row.run(), state_.row.epoch(), 0}.Encode(), content);
    changes.PutMeta(PayloadKey(key), RowOf(upload));
    hashes.push_back(std::move(key));
    ++taken;
    bytes += content.size();
  }
  if (hashes.empty()) return Arrived();
  if (absl::Status status = database.Writable(); !status.ok()) return status;
  auto arrived = Finish(std::move(hashes), std::move(changes));
  if (!arrived.ok()) return arrived;
  context_.metrics->Add(Metric::kIngestBytes, static_cast<double>(bytes), {"payload"});
  context_.metrics->Add(Metric::kPayloadBytes, static_cast<double>(bytes));
  return arrived;
}

absl::StatusOr<PayloadArrivals::Arrived> PayloadArrivals::Resolve(const std::string& hash) {
  auto found = state_.pending.find(hash);
  if (found == state_.pending.end()) return Arrived();
  if (found->second.upload != nullptr) --state_.uploads;
  ChangeSet changes;
  changes.DeleteChunks(ChunkKey::Prefix(hash, state_.row.run(), state_.row.epoch()));
  return Finish({hash}, std::move(changes));
}

storage::PayloadRow PayloadArrivals::RowOf(const PayloadUpload& upload) const {
  storage::PayloadRow row;
  row.set_size(upload.received());
  row.set_chunks(upload.chunks());
  row.set_chunk_bytes(upload.chunk_bytes());
  row.set_run(state_.row.run());
  row.set_epoch(state_.row.epoch());
  return row;
}

absl::StatusOr<PayloadArrivals::Arrived> PayloadArrivals::Finish(std::vector<std::string> hashes, ChangeSet changes) {
  std::vector<SessionState::PendingPayload> whole;
  std::set<uint32_t> steps;
  for (const std::string& hash : hashes) {
    const auto found = state_.pending.find(hash);
    steps.insert(found->second.row.steps().begin(), found->second.row.steps().end());
    changes.Delete(Family::kMeta, PendingKey(state_.row.session(), hash));
    whole.push_back(std::move(found->second));
    state_.pending.erase(found);
  }
  Arrived arrived;
  for (uint32_t step : steps) {
    auto open = state_.steps.find(step);
    if (open == state_.steps.end() || !open->second.row.ended() || state_.HasPending(step)) continue;
    storage::StepRow complete = open->second.row;
    complete.set_state(v1::StepSummary::COMPLETE);
    changes.PutMeta(state_.KeyOf(step).Encode(), complete);
    changes.Put(Family::kMeta, state_.KeyOf(step).Encode(MetaSpace::kUntiled), "");
    arrived.finished.emplace_back(step, v1::StepSummary::COMPLETE);
  }
  if (absl::Status status = context_.store->database().Write(changes); !status.ok()) {
    for (size_t i = 0; i < hashes.size(); ++i) state_.pending[hashes[i]] = std::move(whole[i]);
    return status;
  }
  for (const auto& [step, complete] : arrived.finished) state_.steps.erase(step);
  arrived.hashes = std::move(hashes);
  return arrived;
}

}  // namespace msprobe::server
