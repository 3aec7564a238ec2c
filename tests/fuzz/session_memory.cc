// Session memory that a dead process left: its table, the queue's entries, definitions and batches.
//
// The input is lines: kind, how (bit 0: the place and sizes are those given; else those of the content), facts, length
// of the content, content.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "agent/core/doorbell.h"
#include "agent/core/payload/memory_budget.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/queue/dictionary.h"
#include "agent/core/queue/fragment_queue.h"
#include "agent/core/transport/outbox/outbox.h"
#include "agent/core/transport/packing/packer.h"
#include "tests/fuzz/fuzz_target.h"

namespace msprobe::core {
namespace {

constexpr size_t kRoom = size_t{256} << 10;
constexpr int kMaxLines = 16;

struct Line {
  uint8_t kind, raw;
  uint16_t length;
  uint32_t last_entry;
  uint64_t number, offset, size, used;
};

void Leave(const std::string& path, std::string_view input) {
  SessionOrigin origin;
  origin.mutable_hello()->set_session(std::string(16, 's'));
  auto made = SessionMemory::Create(path, "", kRoom, origin);
  if (!made.ok()) std::abort();
  std::vector<MappedMemory> pieces;
  std::vector<Listing> listings;
  for (int i = 0; i < kMaxLines && input.size() >= sizeof(Line); ++i) {
    Line line;
    std::memcpy(&line, input.data(), sizeof(line));
    input.remove_prefix(sizeof(line));
    const std::string_view content = input.substr(0, line.length);
    input.remove_prefix(content.size());
    const auto kind = static_cast<PieceKind>(line.kind);
    const PieceFacts facts{.number = line.number,
                           .last_entry = line.last_entry,
                           .fragments = 1,
                           .first_step = 1,
                           .hash = content.substr(0, 16)};
    (*made)->NoteCut(line.number, line.last_entry);
    if ((line.raw & 1) != 0) {
      listings.push_back((*made)->List(kind, line.offset, line.size, facts, line.used));
      continue;
    }
    MappedMemory& piece = pieces.emplace_back((*made)->AllocateRecords(std::max<size_t>(content.size(), 1)));
    if (piece.empty()) std::abort();
    std::memcpy(piece.get(), content.data(), content.size());
    listings.push_back((*made)->List(kind, piece, facts, content.size()));
  }
  (*made)->Leave();
}

std::vector<SessionMemory::Left::Piece> Of(PieceKind kind, SessionMemory::Left& left) {
  std::vector<SessionMemory::Left::Piece> found;
  for (SessionMemory::Left::Piece& piece : left.pieces) {
    if (piece.kind == kind) found.push_back(std::move(piece));
  }
  return found;
}

// As LeftSession::Send, without a server.
void Read(SessionMemory::Left left) {
  const auto bell = std::make_shared<Doorbell>();
  MemoryBudget budget(std::numeric_limits<size_t>::max() / 2, LossPolicy::kSpool, absl::ZeroDuration(), [] {});
  Spool spool("", "", 0);
  FragmentQueue queue(bell.get(), left.memory);
  Dictionary dictionary(left.memory);
  Outbox outbox(&budget, &spool, left.memory);
  Outbox::Left held;
  held.batches = Of(PieceKind::kBatch, left);
  held.payloads = Of(PieceKind::kPayload, left);
  held.freed_through = left.freed_through;
  held.cut_through = left.cut_through;
  held.last_entry = left.cut_entry;
  dictionary.Restore(Of(PieceKind::kDictionary, left));
  queue.Restore(Of(PieceKind::kQueue, left), left.cut_entry, left.losses_after, left.losses);
  if (outbox.Restore(std::move(held)).ok()) {
    const HeldBatches& batches = outbox.batches();
    for (uint64_t i = batches.freed_through() + 1; i <= batches.last_sequence(); ++i) (void)batches.Read(i).ok();
  }
  Packer packer("session", &dictionary);
  for (Chunk& chunk : queue.Take()) {
    for (ChunkReader reader(&chunk); reader.Next();) {
      if (reader.is_marker()) {
        v1::Marker marker;
        marker.ParseFromArray(reader.marker().data(), static_cast<int>(reader.marker().size()));
        packer.AddMarker(marker, std::nullopt);
      } else {
        packer.Add(reader.fragment(), reader.leaves());
      }
    }
  }
  if (!packer.empty()) packer.Cut(1);
}

}  // namespace
}  // namespace msprobe::core

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using msprobe::core::SessionMemory;
  static const std::string path = "/dev/shm/msprobe-" + std::string(22, 'f') + std::to_string(1'000'000'000 + getpid());
  msprobe::core::Leave(path, {reinterpret_cast<const char*>(data), size});
  if (auto left = SessionMemory::TakeOver(path, ""); left.ok()) {
    const std::shared_ptr<SessionMemory> memory = left->memory;
    msprobe::core::Read(*std::move(left));
    memory->Leave();
  }
  unlink(path.c_str());
  return 0;
}
