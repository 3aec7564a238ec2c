#include "agent/core/transport/outbox/held_batches.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr absl::string_view kBatchKey = "batch ";  // the sequence follows; other keys are hashes of payloads
// Batches that had no room in the session's memory, and were not freed when the process died.
constexpr uint64_t kMaxMissing = 1 << 16;
// Where several batches lie that would each take a page.
constexpr size_t kBlockBytes = size_t{64} << 10;

}  // namespace

HeldBatches::HeldBatches(MemoryBudget* budget, Spool* spool, std::shared_ptr<SessionMemory> memory)
    : budget_(budget), spool_(spool), memory_(std::move(memory)) {}

HeldBatches::~HeldBatches() {
  for (const Batch& batch : batches_) budget_->Release(batch.bytes.size());
}

char* HeldBatches::Reserve(size_t size, std::shared_ptr<const MappedMemory>& memory) {
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

void HeldBatches::Keep(uint64_t sequence, std::string_view bytes, Batch& batch) {
  char* const at = Reserve(bytes.size(), batch.memory);
  std::memcpy(at, bytes.data(), bytes.size());
  batch.bytes = {at, bytes.size()};
  budget_->Charge(bytes.size());
  if (const std::optional<uint64_t> offset = batch.memory->shared_offset()) {
    const PieceFacts facts{.number = sequence,
                           .last_entry = batch.last_entry,
                           .fragments = batch.summary.fragments,
                           .first_step = batch.summary.first_step.value_or(0),
                           .hash = {}};
    const uint64_t within = static_cast<uint64_t>(at - reinterpret_cast<char*>(batch.memory->get()));
    batch.listing = memory_->List(PieceKind::kBatch, *offset + within, bytes.size(), facts, bytes.size());
  }
}

void HeldBatches::Append(const PackedBatch& packed, std::vector<std::string> announced_first) {
  Batch batch;
  batch.last_entry = packed.last_entry;
  batch.summary = {.first_step = packed.first_step, .fragments = packed.fragments};
  batch.announced_first = std::move(announced_first);
  Keep(packed.sequence, packed.bytes, batch);
  memory_->NoteCut(packed.sequence, packed.last_entry);
  batches_.push_back(std::move(batch));
}

std::optional<uint64_t> HeldBatches::SequenceOfKey(std::string_view key) {
  const absl::string_view text(key.data(), key.size());
  uint64_t sequence = 0;
  if (!absl::StartsWith(text, kBatchKey) || !absl::SimpleAtoi(text.substr(kBatchKey.size()), &sequence)) {
    return std::nullopt;
  }
  return sequence;
}

absl::Status HeldBatches::Restore(Left left) {
  std::map<uint64_t, Batch> found;
  for (Left::Spooled& spooled : left.spooled) {
    Batch& batch = found[spooled.sequence];
    if (batch.place.has_value()) spool_->Release(*batch.place);
    batch.place = spooled.place;
    batch.announced_first = std::move(spooled.announced_first);
  }
  for (SessionMemory::Left::Piece& piece : left.pieces) {
    Batch& batch = found[piece.facts.number];
    // Dead between the spool and the table; or replaced by the later one.
    Forget(batch);
    batch.memory = std::make_shared<const MappedMemory>(std::move(piece.memory));
    batch.bytes = {reinterpret_cast<const char*>(batch.memory->get()), piece.used};
    batch.listing = std::move(piece.listing);
    batch.last_entry = piece.facts.last_entry;
    batch.summary.fragments = piece.facts.fragments;
    if (piece.facts.fragments > 0 || piece.facts.first_step > 0) batch.summary.first_step = piece.facts.first_step;
    budget_->Charge(batch.bytes.size());
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

void HeldBatches::Forget(Batch& batch) {
  batch.listing.Clear();
  budget_->Release(batch.bytes.size());
  if (batch.place.has_value()) spool_->Release(*batch.place);
  batch.bytes = {};
  batch.memory.reset();
  batch.place.reset();
}

void HeldBatches::Acknowledge(uint64_t durable_through) {
  while (!batches_.empty() && freed_through_ < durable_through) {
    durable_entry_ = batches_.front().last_entry;
    Forget(batches_.front());
    batches_.pop_front();
    memory_->NoteFreed(++freed_through_);
  }
  spilled_through_ = std::max(spilled_through_, freed_through_);
}

absl::StatusOr<HeldBatches::Bytes> HeldBatches::Read(uint64_t sequence) const {
  const Batch& batch = Get(sequence);
  if (batch.memory != nullptr) return Bytes{.owner = batch.memory, .view = batch.bytes};
  if (!batch.place.has_value()) return absl::DataLossError("the batch died with its process");
  absl::StatusOr<Spool::Entry> entry = spool_->Read(*batch.place);
  if (!entry.ok()) return entry.status();
  const auto content = std::make_shared<const std::string>(std::move(entry->content));
  return Bytes{.owner = content, .view = *content};
}

void HeldBatches::Replace(uint64_t sequence, std::string_view bytes) {
  Batch& batch = Get(sequence);
  Batch other;
  other.last_entry = batch.last_entry;
  other.summary = batch.summary;
  other.announced_first = std::move(batch.announced_first);
  // The new one is listed before the old one is not.
  Keep(sequence, bytes, other);
  Forget(batch);
  batch = std::move(other);
}

uint64_t HeldBatches::SequenceOfEntry(uint64_t entry) const {
  uint64_t sequence = freed_through_;
  uint64_t covered = durable_entry_;
  for (const Batch& batch : batches_) {
    if (covered >= entry) break;
    covered = batch.last_entry;
    ++sequence;
  }
  return sequence;
}

const std::vector<std::string>* HeldBatches::AnnouncedByOldest() const {
  return spilled_through_ < last_sequence() ? &Get(spilled_through_ + 1).announced_first : nullptr;
}

bool HeldBatches::SpillOldest() {
  const uint64_t sequence = spilled_through_ + 1;
  Batch& batch = Get(sequence);
  if (batch.memory != nullptr) {
    absl::StatusOr<Spool::Place> place = spool_->Append(Cat(kBatchKey, sequence), batch.bytes);
    if (!place.ok()) return false;
    Forget(batch);
    batch.place = *place;
  }
  spilled_through_ = sequence;
  return true;
}

uint64_t HeldBatches::InMemory(bool outliving) const {
  return static_cast<uint64_t>(std::count_if(batches_.begin(), batches_.end(), [&](const Batch& batch) {
    return batch.memory != nullptr && batch.listing.empty() != outliving;
  }));
}

}  // namespace msprobe::core
