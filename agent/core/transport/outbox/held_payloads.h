#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/transport/outbox/spool.h"
#include "agent/core/transport/packing/packer.h"

namespace msprobe::core {

// The payloads that batches have announced and the server has not stored, by hash, in memory or in the spool.
//
// Invariants:
// 1. A payload is held once, however often it is announced, from its first announcement until Release.
// 2. Once Hold has returned, the session's memory lists the payload, until it is released or spooled.
// 3. A payload that is lent stays where it is, in memory, until it is released or lending ends.
//
// Threads: one (the sender). Bytes that were given out stay valid as long as their owner, on any thread.
class HeldPayloads {
 public:
  // `spool` outlives this.
  HeldPayloads(Spool* spool, std::shared_ptr<SessionMemory> memory) : spool_(spool), memory_(std::move(memory)) {}

  // The batch `sequence` announces the payload. False: it is held already.
  bool Hold(const std::string& hash, std::shared_ptr<Payload> payload, uint64_t sequence);
  // The same of what a dead process left in its spool and in its memory. What is found in memory takes the place of
  // what is spooled.
  bool HoldSpooled(const Spool::Found& found);
  void HoldLeft(SessionMemory::Left::Piece piece);
  // Spooled payloads are announced by the batch that comes behind them.
  void SetAnnounced(const std::vector<std::string>& hashes, uint64_t sequence);

  // The server has stored it, or it cannot be sent any more.
  void Release(const std::string& hash);
  // After a reconnection: the server has every payload that a durable batch announced, but the `missing` ones.
  void ReleaseUnlessMissing(uint64_t durable_through, const std::vector<std::string>& missing);

  bool Holds(const std::string& hash) const { return payloads_.contains(hash); }
  uint64_t count() const { return payloads_.size(); }
  // How many are held that batches up to `sequence` announced first.
  uint64_t CountThrough(uint64_t sequence) const;

  // Up to `size` bytes from `offset` on. A spooled payload is read piece by piece, and verified at its first one.
  // NotFound: it is not held. DataLoss: it was changed since it was captured, or the spool could not give it back.
  struct Part {
    std::shared_ptr<const void> owner;
    std::string_view bytes;
    bool last = false;
    std::optional<uint64_t> shared_offset;  // of the bytes in the session's SharedFile
  };
  absl::StatusOr<Part> Read(const std::string& hash, uint64_t offset, size_t size) const;
  // Whether the bytes that Read gives are still those that were captured.
  bool Intact(const std::string& hash) const;

  // The server may read the payload's memory from now on.
  void Lend(const std::string& hash);
  // The server reads it no longer: this payload, which is not lent again; all payloads, which may be.
  void EndLending(const std::string& hash);
  void EndLending();
  bool IsLent(const std::string& hash) const;
  size_t lent_bytes() const { return lent_bytes_; }

  // Moves a payload to the spool, unless it is lent or is the program's own memory, which costs none of ours. False:
  // the spool takes no more.
  bool Spill(const std::string& hash) { return Spill(hash, true); }
  // Moves all that are not lent, also those that are the program's own memory, since the program ends.
  bool SpillAll();

  // How many lie in memory alone: in memory that outlives the process, or in memory that does not.
  uint64_t InMemory(bool outliving) const;

 private:
  struct HeldPayload {
    std::shared_ptr<Payload> memory;
    Listing listing;
    std::optional<Spool::Place> place;  // with null memory
    uint64_t first_announced = 0;
    bool lent = false;
    bool shareable = true;
  };

  void EndLending(HeldPayload& payload);
  bool Spill(const std::string& hash, bool only_copies);

  Spool* const spool_;
  const std::shared_ptr<SessionMemory> memory_;
  size_t lent_bytes_ = 0;
  absl::flat_hash_map<std::string, HeldPayload> payloads_;
};

}  // namespace msprobe::core
