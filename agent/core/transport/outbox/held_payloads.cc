#include "agent/core/transport/outbox/held_payloads.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "agent/core/payload/left_payload.h"
#include "agent/core/payload/mapped_memory.h"
#include "agent/core/payload/payload_pool.h"
#include "agent/core/pool.h"

namespace msprobe::core {
namespace {

std::optional<PayloadDigest> DigestOf(std::string_view hash) {
  PayloadDigest digest;
  if (hash.size() != digest.size()) return std::nullopt;
  std::copy(hash.begin(), hash.end(), digest.begin());
  return digest;
}

}  // namespace

bool HeldPayloads::Hold(const std::string& hash, std::shared_ptr<Payload> payload, uint64_t sequence) {
  const auto [it, inserted] = payloads_.try_emplace(hash);
  if (!inserted) return false;
  HeldPayload& held = it->second;
  held.memory = std::move(payload);
  held.first_announced = sequence;
  if (const std::optional<uint64_t> offset = held.memory->shared_offset()) {
    const PieceFacts facts{.number = sequence, .hash = hash};
    const size_t size = held.memory->size();
    held.listing =
        memory_->List(PieceKind::kPayload, *offset, MappedMemory::Rounded(std::max<size_t>(size, 1)), facts, size);
  }
  return true;
}

bool HeldPayloads::HoldSpooled(const Spool::Found& found) {
  const auto [it, inserted] = payloads_.try_emplace(found.key);
  if (inserted) {
    it->second.place = found.place;
  } else {
    spool_->Release(found.place);
  }
  return inserted;
}

void HeldPayloads::HoldLeft(SessionMemory::Left::Piece piece) {
  HeldPayload& held = payloads_[piece.hash];
  if (held.place.has_value()) spool_->Release(*std::exchange(held.place, std::nullopt));
  held.memory = MakePooled<LeftPayload>(std::move(piece.memory), piece.used, DigestOf(piece.hash));
  held.listing = std::move(piece.listing);
  held.first_announced = piece.facts.number;
}

void HeldPayloads::SetAnnounced(const std::vector<std::string>& hashes, uint64_t sequence) {
  for (const std::string& hash : hashes) payloads_[hash].first_announced = sequence;
}

void HeldPayloads::Release(const std::string& hash) {
  const auto it = payloads_.find(hash);
  if (it == payloads_.end()) return;
  EndLending(it->second);
  if (it->second.place.has_value()) spool_->Release(*it->second.place);
  payloads_.erase(it);
}

void HeldPayloads::ReleaseUnlessMissing(uint64_t durable_through, const std::vector<std::string>& missing) {
  const absl::flat_hash_set<std::string> wanted(missing.begin(), missing.end());
  std::vector<std::string> stored;
  for (const auto& [hash, payload] : payloads_) {
    if (payload.first_announced <= durable_through && !wanted.contains(hash)) stored.push_back(hash);
  }
  for (const std::string& hash : stored) Release(hash);
}

uint64_t HeldPayloads::CountThrough(uint64_t sequence) const {
  return static_cast<uint64_t>(std::count_if(
      payloads_.begin(), payloads_.end(), [&](const auto& entry) { return entry.second.first_announced <= sequence; }));
}

absl::StatusOr<HeldPayloads::Part> HeldPayloads::Read(const std::string& hash, uint64_t offset, size_t size) const {
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
    return Part{.owner = it->second.memory,
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
  return Part{.owner = part, .bytes = *part, .last = read->last, .shared_offset = std::nullopt};
}

bool HeldPayloads::Intact(const std::string& hash) const {
  const auto it = payloads_.find(hash);
  return it == payloads_.end() || it->second.memory == nullptr || it->second.memory->intact();
}

void HeldPayloads::Lend(const std::string& hash) {
  const auto it = payloads_.find(hash);
  if (it == payloads_.end() || std::exchange(it->second.lent, true)) return;
  lent_bytes_ += it->second.memory->size();
}

void HeldPayloads::EndLending(HeldPayload& payload) {
  if (std::exchange(payload.lent, false)) lent_bytes_ -= payload.memory->size();
}

void HeldPayloads::EndLending(const std::string& hash) {
  const auto it = payloads_.find(hash);
  if (it == payloads_.end()) return;
  EndLending(it->second);
  it->second.shareable = false;
}

void HeldPayloads::EndLending() {
  for (auto& [hash, payload] : payloads_) EndLending(payload);
}

bool HeldPayloads::IsLent(const std::string& hash) const {
  const auto it = payloads_.find(hash);
  return it != payloads_.end() && it->second.lent;
}

bool HeldPayloads::Spill(const std::string& hash, bool only_copies) {
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

bool HeldPayloads::SpillAll() {
  return std::all_of(payloads_.begin(), payloads_.end(), [this](const auto& each) { return Spill(each.first, false); });
}

uint64_t HeldPayloads::InMemory(bool outliving) const {
  return static_cast<uint64_t>(std::count_if(payloads_.begin(), payloads_.end(), [&](const auto& each) {
    return each.second.memory != nullptr && each.second.listing.empty() != outliving;
  }));
}

}  // namespace msprobe::core
