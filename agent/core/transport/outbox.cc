#include "agent/core/transport/outbox.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "agent/core/payload/left_payload.h"
#include "agent/core/payload/payload_pool.h"
#include "agent/core/pool.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr absl::string_view kBatchKey = "batch ";  // the sequence follows; other keys are hashes of payloads
// Batches that had no room in the session's memory, and were not freed when the process died.
constexpr uint64_t kMaxMissing = 1 << 16;
// Where several batches lie that would each take a page.
constexpr size_t kBlockBytes = size_t{64} << 10;

std::optional<PayloadDigest> DigestOf(std::string_view hash) {
  PayloadDigest digest;
  if (hash.size() != digest.size()) return std::nullopt;
  std::copy(hash.begin(), hash.end(), digest.begin());
  return digest;
}

}  // namespace

Outbox::Outbox(MemoryBudget* budget, Spool* spool, std::shared_ptr<SessionMemory> memory)
    : budget_(budget), spool_(spool), memory_(std::move(memory)) {}

Outbox::~Outbox() {
  for (const Batch& batch : batches_) budget_->Release(batch.bytes.size());
}

char* Outbox::Reserve(size_t size, std::shared_ptr<const MappedMemory>& memory) {
  const size_t padded = (size + 7) & ~size_t{7};
  if (padded > kBlockBytes / 4) {
    memory = std::make_shared<const MappedMemory>(memory_->AllocateRecords(padded));
    if (memory->empty()) throw std::bad_alloc();
    return reinterpret_cast<char*>(memory->get());
  }
  if (block_ == nullptr || block_->size() - block_used_ < padded) {
    block_ = std::make_shared<const MappedMemory>(memory_->AllocateRecords(kBlockBytes));
    if (block_->empty()) throw std::bad_alloc();
    block_used_ = 0;
  }
  memory = block_;
  return reinterpret_cast<char*>(block_->get()) + std::exchange(block_used_, block_used_ + padded);
}

void Outbox::Keep(uint64_t sequence, std::string_view bytes, Batch& batch) {
  char* const at = Reserve(bytes.size(), batch.memory);
  std::memcpy(at, bytes.data(), bytes.size());
  batch.bytes = {at, bytes.size()};
  budget_->Charge(bytes.size());
  if (const std::optional<uint64_t> offset = batch.memory->shared_offset()) {
    const PieceFacts facts{.number = sequence,
                           .last_entry = batch.last_entry,
                           .fragments = batch.summary.fragments,
                           .first_step = batch.summary.first_step,
                           .hash = {}};
    const uint64_t within = static_cast<uint64_t>(at - reinterpret_cast<char*>(batch.memory->get()));
    batch.listing = memory_->List(PieceKind::kBatch, *offset + within, bytes.size(), facts, bytes.size());
  }
}

void Outbox::Append(PackedBatch packed) {
  Batch batch;
  batch.last_entry = packed.last_entry;
  batch.summary = {.first_step = packed.first_step, .fragments = packed.fragments};
  // Payloads first: once the batch is listed, what it announces has to be.
  for (AnnouncedPayload& announced : packed.payloads) {
    const auto [it, inserted] = payloads_.try_emplace(announced.hash);
    if (!inserted) continue;
    HeldPayload& held = it->second;
    held.memory = std::move(announced.payload);
    held.first_announced = packed.sequence;
    if (const std::optional<uint64_t> offset = held.memory->shared_offset()) {
      const PieceFacts facts{.number = packed.sequence, .hash = announced.hash};
      const size_t size = held.memory->size();
      held.listing =
          memory_->List(PieceKind::kPayload, *offset, MappedMemory::Rounded(std::max<size_t>(size, 1)), facts, size);
    }
    batch.announced_first.push_back(std::move(announced.hash));
  }
  Keep(packed.sequence, packed.bytes, batch);
  memory_->NoteCut(packed.sequence, packed.last_entry);
  batches_.push_back(std::move(batch));
}

absl::Status Outbox::Restore(Left left) {
  std::map<uint64_t, Batch> found;
  std::vector<std::string> announced;  // since the last batch
  for (const Spool::Found& entry : left.spooled) {
    uint64_t sequence = 0;
    const bool is_batch = absl::StartsWith(entry.key, kBatchKey) &&
                          absl::SimpleAtoi(absl::string_view(entry.key).substr(kBatchKey.size()), &sequence);
    if (!is_batch) {
      const auto [it, inserted] = payloads_.try_emplace(entry.key);
      if (!inserted) {
        spool_->Release(entry.place);
      } else {
        it->second.place = entry.place;
        announced.push_back(entry.key);
      }
      continue;
    }
    Batch& batch = found[sequence];
    if (batch.place.has_value()) spool_->Release(*batch.place);
    batch.place = entry.place;
    for (const std::string& hash : announced) payloads_[hash].first_announced = sequence;
    batch.announced_first = std::exchange(announced, {});
  }
  // Those of the batch that was being spooled.
  const uint64_t spooled_through = found.empty() ? 0 : found.rbegin()->first;
  for (const SessionMemory::Left::Piece& piece : left.batches) {
    if (piece.facts.number <= spooled_through) continue;
    for (const std::string& hash : announced) payloads_[hash].first_announced = piece.facts.number;
    break;
  }
  for (SessionMemory::Left::Piece& piece : left.batches) {
    Batch& batch = found[piece.facts.number];
    // Dead between the spool and the table; or replaced by the later one.
    Forget(batch);
    batch.memory = std::make_shared<const MappedMemory>(std::move(piece.memory));
    batch.bytes = {reinterpret_cast<const char*>(batch.memory->get()), piece.used};
    batch.listing = std::move(piece.listing);
    batch.last_entry = piece.facts.last_entry;
    batch.summary = {.first_step = piece.facts.first_step, .fragments = piece.facts.fragments};
    budget_->Charge(batch.bytes.size());
  }
  for (SessionMemory::Left::Piece& piece : left.payloads) {
    HeldPayload& held = payloads_[piece.hash];
    if (held.place.has_value()) spool_->Release(*std::exchange(held.place, std::nullopt));
    held.memory = MakePooled<LeftPayload>(std::move(piece.memory), piece.used, DigestOf(piece.hash));
    held.listing = std::move(piece.listing);
    held.first_announced = piece.facts.number;
  }
  if (left.freed_through.has_value()) {
    freed_through_ = *left.freed_through;
  } else if (!found.empty() && found.begin()->first > 0) {
    freed_through_ = found.begin()->first - 1;
  }
  spilled_through_ = freed_through_;
  const uint64_t last = std::max(left.cut_through, found.empty() ? 0 : found.rbegin()->first);
  if (last > freed_through_ && last - freed_through_ > found.size() + kMaxMissing) {
    return absl::DataLossError(Cat("batches ", freed_through_ + 1, " to ", last, " cannot all have been there"));
  }
  for (uint64_t sequence = freed_through_ + 1; sequence <= last; ++sequence) {
    Batch& batch = found[sequence];
    batches_.push_back(std::move(batch));
  }
  for (auto& [sequence, batch] : found) {
    if (sequence <= freed_through_) Forget(batch);
  }
  while (spilled_through_ < last_sequence() && Get(spilled_through_ + 1).place.has_value()) ++spilled_through_;
  // Of what was spooled it is not known which entry each ended with: `last_entry` is durable with the last of all.
  if (!batches_.empty()) batches_.back().last_entry = std::max(batches_.back().last_entry, left.last_entry);
  return absl::OkStatus();
}

void Outbox::Forget(Batch& batch) {
  batch.listing.Clear();
  budget_->Release(batch.bytes.size());
  if (batch.place.has_value()) spool_->Release(*batch.place);
  batch.bytes = {};
  batch.memory.reset();
  batch.place.reset();
}

void Outbox::Acknowledge(uint64_t durable_through) {
  while (!batches_.empty() && freed_through_ < durable_through) {
    durable_entry_ = batches_.front().last_entry;
    if (batches_.front().place.has_value()) spool_full_ = false;
    Forget(batches_.front());
    batches_.pop_front();
    memory_->NoteFreed(++freed_through_);
  }
  spilled_through_ = std::max(spilled_through_, freed_through_);
}

absl::StatusOr<Outbox::Bytes> Outbox::BatchBytes(uint64_t sequence) const {
  const Batch& batch = Get(sequence);
  if (batch.memory != nullptr) return Bytes{.owner = batch.memory, .view = batch.bytes};
  if (!batch.place.has_value()) return absl::DataLossError("the batch died with its process");
  absl::StatusOr<Spool::Entry> entry = spool_->Read(*batch.place);
  if (!entry.ok()) return entry.status();
  const auto content = std::make_shared<const std::string>(std::move(entry->content));
  return Bytes{.owner = content, .view = *content};
}

void Outbox::ReplaceBatch(uint64_t sequence, std::string_view bytes) {
  Batch& batch = batches_[sequence - freed_through_ - 1];
  Batch other;
  other.last_entry = batch.last_entry;
  other.summary = batch.summary;
  other.announced_first = std::move(batch.announced_first);
  // The new one is listed before the old one is not.
  Keep(sequence, bytes, other);
  Forget(batch);
  batch = std::move(other);
}

Outbox::BatchSummary Outbox::Summary(uint64_t sequence) const { return Get(sequence).summary; }

void Outbox::Stored(const std::string& hash) {
  const auto it = payloads_.find(hash);
  if (it == payloads_.end()) return;
  EndLending(it->second);
  if (it->second.place.has_value()) {
    spool_->Release(*it->second.place);
    spool_full_ = false;
  }
  payloads_.erase(it);
}

void Outbox::StoredUnlessMissing(uint64_t durable_through, const std::vector<std::string>& missing) {
  const absl::flat_hash_set<std::string> wanted(missing.begin(), missing.end());
  std::vector<std::string> stored;
  for (const auto& [hash, payload] : payloads_) {
    if (payload.first_announced <= durable_through && !wanted.contains(hash)) stored.push_back(hash);
  }
  for (const std::string& hash : stored) Stored(hash);
}

bool Outbox::Intact(const std::string& hash) const {
  const auto it = payloads_.find(hash);
  return it == payloads_.end() || it->second.memory == nullptr || it->second.memory->intact();
}

absl::StatusOr<Outbox::PayloadPart> Outbox::ReadPayload(const std::string& hash, uint64_t offset, size_t size) const {
  const auto it = payloads_.find(hash);
  if (it == payloads_.end()) return absl::NotFoundError("the payload is not held");
  if (it->second.memory != nullptr) {
    if (!it->second.memory->intact()) return absl::DataLossError("the tensor was changed before it was sent");
    const std::span<std::byte> bytes = it->second.memory->bytes();
    if (offset > bytes.size()) return absl::DataLossError("the tensor is gone");
    const std::string_view whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::string_view part = whole.substr(offset, size);
    std::optional<uint64_t> shared_offset;
    const bool is_shared = it->second.shareable && whole.size() >= PayloadPool::kSmallestShared && !part.empty();
    if (is_shared) shared_offset = it->second.memory->shared_offset();
    if (shared_offset.has_value()) *shared_offset += offset;
    return PayloadPart{.owner = it->second.memory,
                       .bytes = part,
                       .last = offset + part.size() == whole.size(),
                       .shared_offset = shared_offset};
  }
  if (offset == 0) {
    if (absl::Status status = spool_->Verify(*it->second.place); !status.ok()) return status;
  }
  absl::StatusOr<Spool::Part> read = spool_->ReadPart(*it->second.place, offset, size);
  if (!read.ok()) return read.status();
  const auto part = std::make_shared<const std::string>(std::move(read->bytes));
  return PayloadPart{.owner = part, .bytes = *part, .last = read->last, .shared_offset = std::nullopt};
}

void Outbox::Lend(const std::string& hash) {
  const auto it = payloads_.find(hash);
  if (it == payloads_.end() || std::exchange(it->second.lent, true)) return;
  lent_bytes_ += it->second.memory->size();
}

void Outbox::EndLending(HeldPayload& payload) {
  if (std::exchange(payload.lent, false)) lent_bytes_ -= payload.memory->size();
}

void Outbox::EndLending(const std::string& hash) {
  const auto it = payloads_.find(hash);
  if (it == payloads_.end()) return;
  EndLending(it->second);
  it->second.shareable = false;
}

void Outbox::EndLending() {
  for (auto& [hash, payload] : payloads_) EndLending(payload);
}

bool Outbox::IsLent(const std::string& hash) const {
  const auto it = payloads_.find(hash);
  return it != payloads_.end() && it->second.lent;
}

uint64_t Outbox::PayloadsThrough(uint64_t sequence) const {
  return static_cast<uint64_t>(std::count_if(
      payloads_.begin(), payloads_.end(), [&](const auto& entry) { return entry.second.first_announced <= sequence; }));
}

uint64_t Outbox::SequenceOfEntry(uint64_t entry) const {
  uint64_t sequence = freed_through_;
  uint64_t covered = durable_entry_;
  for (const Batch& batch : batches_) {
    if (covered >= entry) break;
    covered = batch.last_entry;
    ++sequence;
  }
  return sequence;
}

bool Outbox::SpillPayload(const std::string& hash, bool only_copies) {
  const auto it = payloads_.find(hash);
  if (it == payloads_.end() || it->second.memory == nullptr || it->second.lent) return true;
  // What is not a copy needs no memory of ours.
  if (!it->second.memory->counted() && (only_copies || !Intact(hash))) return true;
  const std::span<std::byte> bytes = it->second.memory->bytes();
  absl::StatusOr<Spool::Place> place =
      spool_->Append(hash, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (!place.ok()) return false;
  it->second.place = *place;
  it->second.listing.Clear();
  it->second.memory.reset();
  return true;
}

bool Outbox::SpillAll() {
  EndLending();
  while (SpillOldest()) {
  }
  if (spilled_through_ < last_sequence()) return false;
  // Of batches that are durable already, and what is not a copy.
  return std::all_of(payloads_.begin(), payloads_.end(),
                     [this](const auto& each) { return SpillPayload(each.first, false); });
}

Outbox::Counts Outbox::InMemory(bool outliving) const {
  Counts counts;
  for (const Batch& batch : batches_) {
    counts.batches += batch.memory != nullptr && batch.listing.empty() != outliving;
  }
  for (const auto& [hash, payload] : payloads_) {
    counts.payloads += payload.memory != nullptr && payload.listing.empty() != outliving;
  }
  return counts;
}

bool Outbox::SpillOldest() {
  if (spilled_through_ >= last_sequence()) return false;
  const uint64_t sequence = spilled_through_ + 1;
  Batch& batch = batches_[sequence - freed_through_ - 1];
  for (const std::string& hash : batch.announced_first) {
    if (!SpillPayload(hash, true)) {
      spool_full_ = true;
      return false;
    }
  }
  if (batch.memory != nullptr) {
    absl::StatusOr<Spool::Place> place = spool_->Append(Cat(kBatchKey, sequence), batch.bytes);
    if (!place.ok()) {
      spool_full_ = true;
      return false;
    }
    Forget(batch);
    batch.place = *place;
  }
  spilled_through_ = sequence;
  return true;
}

}  // namespace msprobe::core
