#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "agent/core/doorbell.h"
#include "agent/core/queue/fragment_queue.h"
#include "agent/core/transport/outbox/outbox.h"
#include "agent/core/transport/packing/packer.h"
#include "agent/core/transport/sender_parts.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// Takes the entries of the queue, in their order, and puts them into the outbox as batches.
//
// Invariants:
// 1. A fragment whose reading is still on its way from a device (Leaf::pending) keeps its place. What stands before it
//    goes into a batch; what stands behind it waits.
// 2. A reading is given up when it takes longer than the bound, and when it has not come by ExpectReadingsUntil. Its
//    record goes without numbers and bytes, marked kFault. After that no reading is waited for until one comes.
// 3. A chunk goes back to the queue once the outbox has the batch with its last entry. The session's memory then lists
//    that batch, so whoever takes the memory over when the process has died goes on exactly there.
// 4. Until then no payload of an entry is freed, though the outbox may have its bytes already or the batch may go
//    without it: the entry tells where the bytes lie, and another tensor's would be found there.
// 5. A record behind the end of its step goes into no batch: a thread was in a call when another one ended the step. A
//    server takes no record of a step that has ended, nor anything that comes with it.
//
// Threads: one, but ExpectReadingsUntil any.
class QueueDrain {
 public:
  using Clock = Doorbell::Clock;

  // `parts`, `packer` and `outbox` outlive this. Both functions are called from within Drain and Cut: `on_marker` when
  // a marker has been packed, with open_step() as it was before the marker; `on_batch` when the outbox has a new batch.
  QueueDrain(const SenderParts* parts, Packer* packer, Outbox* outbox, absl::Duration reading_bound,
             std::function<void(const v1::Marker&)> on_marker, std::function<void()> on_batch);

  // The entries of the queue up to this one are in batches already. Only before the first Drain.
  void ContinueAt(uint64_t entry) { packed_entries_ = entry; }
  // And so is the beginning of this step.
  void ContinueIn(std::optional<uint32_t> open_step) { open_step_ = open_step; }

  // Packs what the queue holds, once it is urgent or its oldest entry has lain there for `linger`. Gives the time at
  // which to call it again, unless the bell rings before.
  Clock::time_point Drain(Clock::time_point now, Clock::duration linger);

  // Makes a batch of what the packer holds, which must be something.
  void Cut();

  // No reading is waited for after `end`. Threads: any.
  void ExpectReadingsUntil(Clock::time_point end) { readings_end_ = end; }

  uint64_t packed_entries() const { return packed_entries_; }
  // The step of the last fragment, unless its end has been packed since.
  std::optional<uint32_t> open_step() const { return open_step_; }
  bool waits_for_reading() const { return waiting_since_.has_value(); }
  // Whether everything that was taken from the queue has been packed.
  bool empty() const { return taken_.empty(); }

 private:
  Clock::time_point PackTaken(Clock::time_point now);
  // False: a reading is under way.
  bool PackFront(Clock::time_point now);
  // Says that a dead process had entries which are not there any more.
  void PackGapBefore(const Chunk& chunk);
  void PackMarker(std::string_view serialized);
  // Whether `step` is one of the last that ended.
  bool HasEnded(uint32_t step) const;
  // Completes the leaves of reader_'s fragment. False: a reading is under way.
  bool CompleteReadings(Clock::time_point now);
  // Everything packed is in a batch that is listed.
  void GiveBackChunks();

  const SenderParts& parts_;
  Packer* const packer_;
  Outbox* const outbox_;
  const Clock::duration reading_bound_;
  const std::function<void(const v1::Marker&)> on_marker_;
  const std::function<void()> on_batch_;
  std::atomic<Clock::time_point> readings_end_{Clock::time_point::max()};

  // A thread that loses its processor between its question for the step and the queue is late by a few steps at most.
  static constexpr size_t kEndedSteps = 64;

  uint64_t packed_entries_ = 0;
  std::optional<uint32_t> open_step_;
  std::array<uint32_t, kEndedSteps> ended_{};       // the last ones that ended, in a circle
  size_t next_ended_ = 0;                           // counts all
  std::deque<Chunk> packed_;                        // their last entries are not in a batch yet
  std::vector<std::shared_ptr<Payload>> unlisted_;  // of the entries packed since the last batch
  std::deque<Chunk> taken_;            // between two calls of Drain: not empty only behind a reading that is under way
  std::optional<ChunkReader> reader_;  // of taken_.front()
  std::optional<Clock::time_point> waiting_since_;  // for a reading of reader_'s fragment
  bool gave_up_ = false;                            // on a reading, and none has come since
};

}  // namespace msprobe::core
