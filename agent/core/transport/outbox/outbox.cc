#include "agent/core/transport/outbox/outbox.h"

#include <algorithm>
#include <string>
#include <utility>

namespace msprobe::core {

Outbox::Outbox(MemoryBudget* budget, Spool* spool, std::shared_ptr<SessionMemory> memory)
    : batches_(budget, spool, memory), payloads_(spool, std::move(memory)) {}

void Outbox::Append(PackedBatch batch) {
  std::vector<std::string> announced_first;
  for (AnnouncedPayload& announced : batch.payloads) {
    if (payloads_.Hold(announced.hash, std::move(announced.payload), batch.sequence)) {
      announced_first.push_back(std::move(announced.hash));
    }
  }
  batches_.Append(batch, std::move(announced_first));
}

absl::Status Outbox::Restore(Left left) {
  HeldBatches::Left batches{.spooled = {},
                            .pieces = std::move(left.batches),
                            .freed_through = left.freed_through,
                            .cut_through = left.cut_through,
                            .last_entry = left.last_entry};
  uint64_t spooled_through = 0;
  std::vector<std::string> announced;  // since the last batch
  for (const Spool::Found& entry : left.spooled) {
    if (const std::optional<uint64_t> sequence = HeldBatches::SequenceOfKey(entry.key)) {
      payloads_.SetAnnounced(announced, *sequence);
      batches.spooled.push_back({*sequence, entry.place, std::exchange(announced, {})});
      spooled_through = std::max(spooled_through, *sequence);
    } else if (payloads_.HoldSpooled(entry)) {
      announced.push_back(entry.key);
    }
  }
  // Those of the batch that was being spooled.
  const auto being_spooled =
      std::find_if(batches.pieces.begin(), batches.pieces.end(),
                   [&](const SessionMemory::Left::Piece& piece) { return piece.facts.number > spooled_through; });
  if (being_spooled != batches.pieces.end()) payloads_.SetAnnounced(announced, being_spooled->facts.number);
  for (SessionMemory::Left::Piece& piece : left.payloads) payloads_.HoldLeft(std::move(piece));
  return batches_.Restore(std::move(batches));
}

bool Outbox::SpillOldest() {
  const std::vector<std::string>* const announced = batches_.AnnouncedByOldest();
  if (announced == nullptr) return false;
  for (const std::string& hash : *announced) {
    if (!payloads_.Spill(hash)) return false;
  }
  return batches_.SpillOldest();
}

bool Outbox::SpillAll() {
  payloads_.EndLending();
  while (SpillOldest()) {
  }
  // Then those of batches that are durable already, and the program's own memory.
  return batches_.AnnouncedByOldest() == nullptr && payloads_.SpillAll();
}

}  // namespace msprobe::core
