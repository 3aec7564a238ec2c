#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/queue/dictionary.h"
#include "agent/core/record.h"
#include "agent/core/transport/packing/block_writer.h"
#include "agent/core/transport/packing/definitions.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

struct PackedBatch {
  uint64_t sequence = 0;
  std::string bytes;                   // a serialized v1::AgentMessage with the batch
  uint64_t last_entry = 0;             // entries of the queue up to this one are in this batch or in an earlier one
  std::optional<uint32_t> first_step;  // of the first item that belongs to one
  uint64_t fragments = 0;
  std::vector<AnnouncedPayload> payloads;
};

// Turns fragments into batches of columns. A batch defines the structures and stacks that it is the first to use, so
// whoever has the first batches of a session, however many, can read them all.
//
// It also hashes payloads that have no name yet, and reads source lines: work for the sender, not for a capturing
// thread.
//
// Threads: one.
class Packer {
 public:
  static constexpr size_t kMaxFragments = 4096;
  static constexpr size_t kMaxBytes = size_t{1} << 20;
  // A larger fragment would not fit into a message; it becomes a gap.
  static constexpr size_t kLargestFragment = size_t{3} << 20;

  Packer(std::string session, const Dictionary* dictionary);

  // `leaves` are those of `fragment`; their payloads move out of them. False: the fragment does not fit its structure,
  // is too large, or has changed since it was captured; a gap takes its place.
  bool Add(const Fragment& fragment, std::vector<Leaf>& leaves);
  // `step`: the one that the marker belongs to.
  void AddMarker(const v1::Marker& marker, std::optional<uint32_t> step);

  // From now on fragments come from a file. Each fragment's digest is computed again, and a fragment that has
  // changed becomes a gap.
  void Verify() { verifies_ = true; }

  // The first batch gets this sequence. Only before the first Cut.
  void ContinueAt(uint64_t sequence) { next_sequence_ = sequence; }

  bool empty() const { return batch_->items_size() == 0; }
  bool full() const { return packed_.fragments >= kMaxFragments || bytes_ >= kMaxBytes; }

  // Makes a batch, with the next sequence, of what has been added since the last Cut. Not while empty.
  PackedBatch Cut(uint64_t last_entry);

  // All the definitions of the session so far, for a server that has lost them.
  void CopyDefinitions(v1::Batch* batch) { definitions_.CopyAll(batch); }
  // The same, in the batch that is being made.
  void RestateDefinitions() { CopyDefinitions(batch_); }

 private:
  void AddGap(uint32_t step, uint64_t payloads);

  const std::string session_;
  const Dictionary* const dictionary_;
  Definitions definitions_;
  BlockWriter block_;

  v1::AgentMessage message_;
  v1::Batch* batch_;
  PackedBatch packed_;
  size_t bytes_ = 0;  // an estimate
  uint64_t next_sequence_ = 1;
  bool verifies_ = false;
};

// What batches may hold that not every server knows, by the words of its Welcome.
struct KnownColumns {
  bool digests = false;
  bool edges = false;
  bool scalars = false;
  bool responses = false;

  bool all() const { return digests && edges && scalars && responses; }
};
// The bytes of a batch without the columns and items that the server does not know.
std::string Plainer(std::string_view batch, KnownColumns known);

}  // namespace msprobe::core
