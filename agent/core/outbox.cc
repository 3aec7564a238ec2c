#include "agent/core/outbox.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr absl::string_view kBatchKey = "batch ";  // the sequence follows; other keys are hashes of payloads

}  // namespace

Outbox::Outbox(MemoryBudget* budget, Spool* spool) : budget_(budget), spool_(spool) {}

Outbox::~Outbox() {
  for (const Batch& batch : batches_) {
    if (batch.bytes != nullptr) budget_->Release(batch.bytes->size());
  }
}

void Outbox::Append(PackedBatch packed) {
  Batch batch;
  budget_->Charge(packed.bytes.size());
  batch.bytes = std::make_shared<const std::string>(std::move(packed.bytes));
  batch.last_entry = packed.last_entry;
  batch.summary = {.first_step = packed.first_step, .fragments = packed.fragments};
  for (AnnouncedPayload& announced : packed.payloads) {
    const auto [it, inserted] = payloads_.try_emplace(announced.hash);
    if (!inserted) continue;
    it->second.memory = std::move(announced.payload);
    it->second.first_announced = packed.sequence;
    batch.announced_first.push_back(std::move(announced.hash));
  }
  batches_.push_back(std::move(batch));
}

void Outbox::Restore(const std::vector<Spool::Found>& entries, uint64_t last_entry) {
  std::vector<std::string> announced;  // since the last batch
  bool whole = true;
  for (const Spool::Found& entry : entries) {
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
    if (batches_.empty() && sequence > 0) freed_through_ = spilled_through_ = sequence - 1;
    whole = whole && sequence == last_sequence() + 1;
    if (!whole) {
      spool_->Release(entry.place);
      continue;
    }
    Batch batch;
    batch.place = entry.place;
    for (const std::string& hash : announced) payloads_[hash].first_announced = sequence;
    batch.announced_first = std::exchange(announced, {});
    batches_.push_back(std::move(batch));
    spilled_through_ = sequence;
  }
  // Which entry each of them ended with is not known any more: `last_entry` is durable with the last of them.
  if (!batches_.empty()) batches_.back().last_entry = last_entry;
}

void Outbox::Forget(Batch& batch) {
  if (batch.bytes != nullptr) budget_->Release(batch.bytes->size());
  if (batch.place.has_value()) spool_->Release(*batch.place);
  batch.bytes.reset();
  batch.place.reset();
}

void Outbox::Acknowledge(uint64_t durable_through) {
  while (!batches_.empty() && freed_through_ < durable_through) {
    durable_entry_ = batches_.front().last_entry;
    if (batches_.front().place.has_value()) spool_full_ = false;
    Forget(batches_.front());
    batches_.pop_front();
    ++freed_through_;
  }
  spilled_through_ = std::max(spilled_through_, freed_through_);
}

absl::StatusOr<std::shared_ptr<const std::string>> Outbox::BatchBytes(uint64_t sequence) const {
  const Batch& batch = Get(sequence);
  if (batch.bytes != nullptr) return batch.bytes;
  absl::StatusOr<Spool::Entry> entry = spool_->Read(*batch.place);
  if (!entry.ok()) return entry.status();
  return std::make_shared<const std::string>(std::move(entry->content));
}

void Outbox::ReplaceBatch(uint64_t sequence, std::string bytes) {
  Batch& batch = batches_[sequence - freed_through_ - 1];
  Forget(batch);
  budget_->Charge(bytes.size());
  batch.bytes = std::make_shared<const std::string>(std::move(bytes));
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
    if (it->second.shareable && !part.empty()) shared_offset = it->second.memory->shared_offset();
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

bool Outbox::SpillPayload(const std::string& hash) {
  const auto it = payloads_.find(hash);
  if (it == payloads_.end() || it->second.memory == nullptr || it->second.lent) return true;
  // What is not a copy needs no memory of ours.
  if (!it->second.memory->counted()) return true;
  const std::span<std::byte> bytes = it->second.memory->bytes();
  absl::StatusOr<Spool::Place> place =
      spool_->Append(hash, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (!place.ok()) return false;
  it->second.place = *place;
  it->second.memory.reset();
  return true;
}

bool Outbox::SpillAll() {
  EndLending();
  while (SpillOldest()) {
  }
  if (spilled_through_ < last_sequence()) return false;
  // Of batches that are durable already.
  return std::all_of(payloads_.begin(), payloads_.end(), [this](const auto& each) { return SpillPayload(each.first); });
}

bool Outbox::SpillOldest() {
  if (spilled_through_ >= last_sequence()) return false;
  const uint64_t sequence = spilled_through_ + 1;
  Batch& batch = batches_[sequence - freed_through_ - 1];
  for (const std::string& hash : batch.announced_first) {
    if (!SpillPayload(hash)) {
      spool_full_ = true;
      return false;
    }
  }
  if (batch.bytes != nullptr) {
    absl::StatusOr<Spool::Place> place = spool_->Append(Cat(kBatchKey, sequence), *batch.bytes);
    if (!place.ok()) {
      spool_full_ = true;
      return false;
    }
    budget_->Release(batch.bytes->size());
    batch.bytes.reset();
    batch.place = *place;
  }
  spilled_through_ = sequence;
  return true;
}

}  // namespace msprobe::core
