#include "agent/core/queue/fragment_queue.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "agent/core/payload/left_payload.h"
#include "agent/core/queue/padded.h"

namespace msprobe::core {
namespace {

constexpr size_t kQueueChunkBytes = size_t{256} << 10;
constexpr size_t kSpareChunks = 4;

struct EntryHeader {
  uint64_t size;  // of the entry, this header included
  uint64_t ordinal;
  uint32_t is_marker;
  uint32_t marker_size;
  uint32_t step, token, structure, count, flags, stack, parent, thread;
  uint32_t leaves, dims, integers, floats, booleans, strings, payloads, digest;
};

// A Leaf without the members that own or point.
struct PackedLeaf {
  double max, min, mean, norm, variance;
  int64_t integer_max, integer_min;
  uint64_t zero_count, nan_count, positive_inf_count, negative_inf_count;
  double finite_max, finite_min, finite_mean, finite_norm;
  uint64_t xor64;
  uint32_t crc32;
  uint32_t dims;
  uint8_t has_statistics, is_integer, is_wide, reused, has_finite, has_crc32, has_xor64, has_payload;
  // Format 1 of the session's memory has zeros in place of the edge.
  uint8_t has_pending, edge;
  uint16_t edge_leaf;
  int32_t edge_distance;
};

// Where to find the bytes of a leaf's payload when the process is gone.
struct PackedPayload {
  static constexpr uint64_t kNowhere = ~uint64_t{0};

  uint64_t offset;  // in the session's memory
  uint64_t size;
  uint64_t is_named;
  PayloadDigest hash;
};
static_assert(std::is_trivially_copyable_v<PackedLeaf> && sizeof(EntryHeader) % 8 == 0 && sizeof(PackedLeaf) % 8 == 0 &&
              sizeof(PackedPayload) % 8 == 0);

struct Sizes {
  size_t dims = 0, string_bytes = 0, payloads = 0, total = 0;
};

Sizes Measure(const Fragment& fragment) {
  Sizes sizes;
  for (const Leaf& leaf : fragment.leaves) {
    sizes.dims += leaf.shape.size();
    sizes.payloads += leaf.payload != nullptr;
  }
  for (std::string_view text : fragment.strings) sizes.string_bytes += text.size();
  sizes.total = sizeof(EntryHeader) + fragment.leaves.size() * sizeof(PackedLeaf) +
                sizes.payloads * sizeof(PackedPayload) +
                8 * (sizes.dims + fragment.integers.size() + fragment.floats.size() + fragment.strings.size()) +
                Padded(fragment.booleans.size()) + Padded(sizes.string_bytes);
  return sizes;
}

char* Put(char* out, const void* from, size_t size) {
  if (size > 0) std::memcpy(out, from, size);
  return out + size;
}

PackedLeaf Pack(const Leaf& leaf) {
  return PackedLeaf{.max = leaf.max,
                    .min = leaf.min,
                    .mean = leaf.mean,
                    .norm = leaf.norm,
                    .variance = leaf.variance,
                    .integer_max = leaf.integer_max,
                    .integer_min = leaf.integer_min,
                    .zero_count = leaf.zero_count,
                    .nan_count = leaf.nan_count,
                    .positive_inf_count = leaf.positive_inf_count,
                    .negative_inf_count = leaf.negative_inf_count,
                    .finite_max = leaf.finite_max,
                    .finite_min = leaf.finite_min,
                    .finite_mean = leaf.finite_mean,
                    .finite_norm = leaf.finite_norm,
                    .xor64 = leaf.xor64.value_or(0),
                    .crc32 = leaf.crc32.value_or(0),
                    .dims = static_cast<uint32_t>(leaf.shape.size()),
                    .has_statistics = leaf.has_statistics,
                    .is_integer = leaf.is_integer,
                    .is_wide = leaf.is_wide,
                    .reused = leaf.reused,
                    .has_finite = leaf.has_finite,
                    .has_crc32 = leaf.crc32.has_value(),
                    .has_xor64 = leaf.xor64.has_value(),
                    .has_payload = leaf.payload != nullptr,
                    .has_pending = leaf.pending != nullptr,
                    .edge = static_cast<uint8_t>(leaf.edge.kind),
                    .edge_leaf = leaf.edge.leaf,
                    .edge_distance = leaf.edge.distance};
}

PackedPayload Pack(Payload& payload) {
  PackedPayload packed{.offset = payload.shared_offset().value_or(PackedPayload::kNowhere),
                       .size = payload.size(),
                       .is_named = 0,
                       .hash = {}};
  const std::string_view hash = payload.name()->hash();
  packed.is_named = hash.size() == packed.hash.size();
  std::copy(hash.begin(), hash.end(), packed.hash.begin());
  return packed;
}

void Unpack(const PackedLeaf& packed, Leaf* leaf) {
  leaf->has_statistics = packed.has_statistics != 0;
  leaf->is_integer = packed.is_integer != 0;
  leaf->is_wide = packed.is_wide != 0;
  leaf->reused = packed.reused != 0;
  leaf->max = packed.max;
  leaf->min = packed.min;
  leaf->mean = packed.mean;
  leaf->norm = packed.norm;
  leaf->variance = packed.variance;
  leaf->integer_max = packed.integer_max;
  leaf->integer_min = packed.integer_min;
  leaf->zero_count = packed.zero_count;
  leaf->nan_count = packed.nan_count;
  leaf->positive_inf_count = packed.positive_inf_count;
  leaf->negative_inf_count = packed.negative_inf_count;
  leaf->has_finite = packed.has_finite != 0;
  leaf->finite_max = packed.finite_max;
  leaf->finite_min = packed.finite_min;
  leaf->finite_mean = packed.finite_mean;
  leaf->finite_norm = packed.finite_norm;
  leaf->crc32 = packed.has_crc32 ? std::optional<uint32_t>(packed.crc32) : std::nullopt;
  leaf->xor64 = packed.has_xor64 ? std::optional<uint64_t>(packed.xor64) : std::nullopt;
  leaf->edge = {};
  if (packed.edge <= static_cast<uint8_t>(EdgeKind::kSum)) {
    leaf->edge = {static_cast<EdgeKind>(packed.edge), packed.edge_leaf, packed.edge_distance};
  }
  leaf->payload.reset();
  leaf->pending.reset();
}

void Encode(const Fragment& fragment, const Sizes& sizes, char* out, Chunk* chunk) {
  const EntryHeader header{.size = sizes.total,
                           .ordinal = fragment.ordinal,
                           .is_marker = 0,
                           .marker_size = 0,
                           .step = fragment.step,
                           .token = fragment.token,
                           .structure = fragment.structure,
                           .count = fragment.count,
                           .flags = fragment.flags,
                           .stack = fragment.stack,
                           .parent = fragment.parent,
                           .thread = fragment.thread,
                           .leaves = static_cast<uint32_t>(fragment.leaves.size()),
                           .dims = static_cast<uint32_t>(sizes.dims),
                           .integers = static_cast<uint32_t>(fragment.integers.size()),
                           .floats = static_cast<uint32_t>(fragment.floats.size()),
                           .booleans = static_cast<uint32_t>(fragment.booleans.size()),
                           .strings = static_cast<uint32_t>(fragment.strings.size()),
                           .payloads = static_cast<uint32_t>(sizes.payloads),
                           .digest = fragment.digest};
  out = Put(out, &header, sizeof(header));
  for (const Leaf& leaf : fragment.leaves) {
    const PackedLeaf packed = Pack(leaf);
    out = Put(out, &packed, sizeof(packed));
    if (leaf.payload != nullptr) chunk->payloads.push_back(leaf.payload);
    if (leaf.pending != nullptr) chunk->pendings.push_back(leaf.pending);
  }
  for (const Leaf& leaf : fragment.leaves) {
    if (leaf.payload == nullptr) continue;
    const PackedPayload packed = Pack(*leaf.payload);
    out = Put(out, &packed, sizeof(packed));
  }
  for (const Leaf& leaf : fragment.leaves) out = Put(out, leaf.shape.data(), leaf.shape.size_bytes());
  out = Put(out, fragment.integers.data(), fragment.integers.size_bytes());
  out = Put(out, fragment.floats.data(), fragment.floats.size_bytes());
  for (std::string_view text : fragment.strings) {
    const uint64_t length = text.size();
    out = Put(out, &length, sizeof(length));
  }
  Put(out, fragment.booleans.data(), fragment.booleans.size());
  out += Padded(fragment.booleans.size());
  for (std::string_view text : fragment.strings) out = Put(out, text.data(), text.size());
}

// Chunks begin at a page boundary and entries are multiples of eight bytes, so every type here is aligned.
template <typename T>
std::span<const T> View(const char** at, size_t count) {
  const std::span<const T> view(reinterpret_cast<const T*>(*at), count);
  *at += view.size_bytes();
  return view;
}

// A reading that was still under way when its process died.
class LeftReading final : public PendingReading {
 public:
  State state() const override { return State::kLost; }
  void RingWhenDone(std::shared_ptr<Doorbell>) override {}
  void Complete(Leaf&) override {}
};

// The header of the entry at the start of `bytes`, which are not trusted. nullopt: there is no complete entry.
std::optional<EntryHeader> WholeEntry(std::string_view bytes) {
  EntryHeader header;
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.size > bytes.size() || header.size % 8 != 0 || header.size < sizeof(header)) return std::nullopt;
  if (header.is_marker != 0) {
    return sizeof(header) + Padded(header.marker_size) == header.size ? std::optional(header) : std::nullopt;
  }
  const uint64_t words = uint64_t{header.dims} + header.integers + header.floats + header.strings;
  const uint64_t before_strings = sizeof(header) + header.leaves * uint64_t{sizeof(PackedLeaf)} +
                                  header.payloads * uint64_t{sizeof(PackedPayload)} + 8 * words +
                                  Padded(header.booleans);
  if (before_strings > header.size) return std::nullopt;
  const char* at = bytes.data() + sizeof(header);
  uint64_t dims = 0, payloads = 0, string_bytes = 0;
  for (const PackedLeaf& leaf : View<PackedLeaf>(&at, header.leaves)) {
    dims += leaf.dims;
    payloads += leaf.has_payload != 0;
  }
  at += header.payloads * sizeof(PackedPayload) + 8 * (words - header.strings);
  for (uint64_t length : View<uint64_t>(&at, header.strings)) {
    if (length > header.size) return std::nullopt;
    string_bytes += length;
  }
  const bool fits =
      dims == header.dims && payloads == header.payloads && before_strings + Padded(string_bytes) == header.size;
  return fits ? std::optional(header) : std::nullopt;
}

}  // namespace

size_t EncodedSize(const Fragment& fragment) { return Measure(fragment).total; }

char* FragmentQueue::Reserve(size_t size) {
  const bool was_empty = full_.empty() && open_.entries == 0;
  if (open_.memory.size() - open_.size < size) {
    if (open_.entries > 0) {
      full_.push_back(std::move(open_));
      urgent_ = true;
      bell_->Ring();
    }
    open_ = Chunk();
    if (!spare_.empty() && size <= kQueueChunkBytes) {
      open_ = std::move(spare_.back());
      spare_.pop_back();
    } else {
      open_.memory = memory_->AllocateRecords(std::max(size, kQueueChunkBytes));
      if (open_.memory.empty()) throw std::bad_alloc();
    }
    open_.before = appended_;
    open_.listing = memory_->List(PieceKind::kQueue, open_.memory, {.number = appended_}, 0);
  }
  if (was_empty) {
    oldest_ = Clock::now();
    bell_->Ring();
  }
  char* const at = open_.bytes() + open_.size;
  open_.size += size;
  ++open_.entries;
  ++appended_;
  return at;
}

void FragmentQueue::Commit() { open_.listing.SetUsed(open_.size); }

void FragmentQueue::PutMarker(const v1::Marker& marker) {
  const size_t marker_size = marker.ByteSizeLong();
  EntryHeader header{};
  header.size = sizeof(EntryHeader) + Padded(marker_size);
  header.is_marker = 1;
  header.marker_size = static_cast<uint32_t>(marker_size);
  char* const out = Put(Reserve(header.size), &header, sizeof(header));
  static_cast<void>(marker.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(out)));
  Commit();
  urgent_ = true;
}

void FragmentQueue::PutLosses(uint32_t step) {
  if (losses_.empty()) return;
  for (const Loss& loss : losses_) {
    v1::Marker marker;
    v1::Marker::Gap* const gap = marker.mutable_gap();
    gap->set_step(loss.step.value_or(step));
    gap->set_fragments(loss.fragments);
    gap->set_payloads(loss.payloads);
    gap->set_reason(loss.reason);
    PutMarker(marker);
  }
  losses_.clear();
  memory_->NoteLosses(appended_, losses_);
}

void FragmentQueue::Append(const Fragment& fragment) {
  const Sizes sizes = Measure(fragment);
  MutexLock lock(&mu_);
  if (closed_) return;
  PutLosses(fragment.step);
  char* const out = Reserve(sizes.total);
  open_.charged += sizes.total;
  Encode(fragment, sizes, out, &open_);
  Commit();
}

void FragmentQueue::AppendMarker(const v1::Marker& marker) {
  MutexLock lock(&mu_);
  if (closed_) return;
  uint32_t step = 0;
  if (marker.has_step_end()) step = marker.step_end().step();
  if (marker.has_step_discarded()) step = marker.step_discarded().step();
  if (marker.has_export_open_step()) step = marker.export_open_step().step();
  PutLosses(step);
  PutMarker(marker);
  bell_->Ring();
}

void FragmentQueue::AddLoss(const Loss& loss) {
  MutexLock lock(&mu_);
  if (closed_) return;
  const auto same = std::find_if(losses_.begin(), losses_.end(), [&](const Loss& other) {
    return other.step == loss.step && other.reason == loss.reason;
  });
  if (same == losses_.end()) {
    losses_.push_back(loss);
  } else {
    same->fragments += loss.fragments;
    same->payloads += loss.payloads;
  }
  memory_->NoteLosses(appended_, losses_);
}

uint64_t FragmentQueue::Flush() {
  MutexLock lock(&mu_);
  urgent_ = true;
  bell_->Ring();
  return appended_;
}

FragmentQueue::Fill FragmentQueue::fill() const {
  MutexLock lock(&mu_);
  return Fill{.empty = full_.empty() && open_.entries == 0, .urgent = urgent_, .oldest = oldest_};
}

std::vector<Chunk> FragmentQueue::Take() {
  MutexLock lock(&mu_);
  std::vector<Chunk> taken = std::move(full_);
  full_.clear();
  if (open_.entries > 0) {
    taken.push_back(std::move(open_));
    open_ = Chunk();
  }
  urgent_ = false;
  return taken;
}

void FragmentQueue::Recycle(Chunk chunk) {
  chunk.listing.Clear();
  chunk.left = MappedMemory();
  // A chunk in private memory is not kept, because the memory that outlives the process may have room again.
  if (chunk.memory.size() != kQueueChunkBytes || chunk.memory.shared_offset().has_value() != memory_->outlives())
    return;
  chunk.size = 0;
  chunk.charged = 0;
  chunk.entries = 0;
  chunk.payloads.clear();
  chunk.pendings.clear();
  MutexLock lock(&mu_);
  if (spare_.size() < kSpareChunks) spare_.push_back(std::move(chunk));
}

uint64_t FragmentQueue::Restore(std::vector<SessionMemory::Left::Piece> chunks, uint64_t packed, uint64_t losses_after,
                                const std::vector<Loss>& losses) {
  uint64_t senseless = 0;
  MutexLock lock(&mu_);
  appended_ = packed;
  for (SessionMemory::Left::Piece& piece : chunks) {
    Chunk chunk;
    // Checks a copy, which nobody can change meanwhile.
    chunk.memory = MappedMemory::Allocate(std::max<uint64_t>(piece.used, 1));
    if (chunk.memory.empty()) throw std::bad_alloc();
    std::memcpy(chunk.memory.get(), piece.memory.get(), piece.used);
    senseless += RestoreEntries(piece.used, appended_, piece.facts.number, &chunk);
    chunk.listing = std::move(piece.listing);
    chunk.left = std::move(piece.memory);
    appended_ = std::max(appended_, chunk.before + chunk.entries);
    if (chunk.entries > 0) full_.push_back(std::move(chunk));
  }
  urgent_ = true;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (losses_after + i >= appended_) losses_.push_back(losses[i]);  // else the queue has its marker
  }
  PutLosses(0);
  return senseless;
}

uint64_t FragmentQueue::RestoreEntries(size_t used, uint64_t known, uint64_t before, Chunk* chunk) {
  size_t begin = 0, end = 0;
  chunk->before = before;
  while (end < used) {
    const std::optional<EntryHeader> header = WholeEntry({chunk->bytes() + end, used - end});
    if (!header.has_value()) break;
    if (chunk->before < known && chunk->entries == 0) {
      ++chunk->before;
      begin = end + header->size;
    } else {
      ++chunk->entries;
      if (header->is_marker == 0) RestorePayloads(chunk->bytes() + end, chunk);
    }
    end += header->size;
  }
  const uint64_t senseless = end < used ? 1 : 0;
  std::memmove(chunk->bytes(), chunk->bytes() + begin, end - begin);
  chunk->size = end - begin;
  return senseless;
}

void FragmentQueue::RestorePayloads(char* entry, Chunk* chunk) {
  const char* at = entry;
  const EntryHeader header = View<EntryHeader>(&at, 1)[0];
  const std::span<PackedLeaf> leaves(reinterpret_cast<PackedLeaf*>(const_cast<char*>(at)), header.leaves);
  at += leaves.size_bytes();
  std::span<const PackedPayload> payloads = View<PackedPayload>(&at, header.payloads);
  for (PackedLeaf& leaf : leaves) {
    if (leaf.has_payload != 0) {
      const PackedPayload& packed = payloads.front();
      const size_t bytes = MappedMemory::Rounded(std::max<uint64_t>(packed.size, 1));
      MappedMemory memory;
      if (packed.offset % 4096 == 0 && bytes >= packed.size) memory = memory_->Claim(packed.offset, bytes);
      const std::optional<PayloadDigest> hash =
          packed.is_named != 0 ? std::optional<PayloadDigest>(packed.hash) : std::nullopt;
      if (leaf.has_pending != 0 || (memory.empty() && !hash.has_value())) {
        avoided_.push_back(std::exchange(memory, MappedMemory()));
        leaf.has_pending = 1;
      }
      chunk->payloads.push_back(MakePooled<LeftPayload>(std::move(memory), packed.size, hash));
      payloads = payloads.subspan(1);
    }
    if (leaf.has_pending != 0) chunk->pendings.push_back(MakePooled<LeftReading>());
  }
  at += 8 * (size_t{header.dims} + header.integers + header.floats + header.strings);
  for (char& value : std::span(const_cast<char*>(at), header.booleans)) value = value != 0;
}

void FragmentQueue::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
}

bool ChunkReader::Next() {
  if (offset_ >= chunk_->size) return false;
  const char* at = chunk_->bytes() + offset_;
  const EntryHeader& header = View<EntryHeader>(&at, 1)[0];
  offset_ += header.size;
  is_marker_ = header.is_marker != 0;
  if (is_marker_) {
    marker_ = std::string_view(at, header.marker_size);
    return true;
  }
  const std::span<const PackedLeaf> packed = View<PackedLeaf>(&at, header.leaves);
  View<PackedPayload>(&at, header.payloads);
  std::span<const int64_t> dims = View<int64_t>(&at, header.dims);
  leaves_.resize(packed.size());
  for (size_t i = 0; i < packed.size(); ++i) {
    Unpack(packed[i], &leaves_[i]);
    leaves_[i].shape = dims.first(packed[i].dims);
    dims = dims.subspan(packed[i].dims);
    if (packed[i].has_payload != 0) leaves_[i].payload = std::move(chunk_->payloads[next_payload_++]);
    if (packed[i].has_pending != 0) leaves_[i].pending = std::move(chunk_->pendings[next_pending_++]);
  }
  fragment_.step = header.step;
  fragment_.token = header.token;
  fragment_.structure = header.structure;
  fragment_.count = header.count;
  fragment_.ordinal = header.ordinal;
  fragment_.flags = header.flags;
  fragment_.stack = header.stack;
  fragment_.parent = header.parent;
  fragment_.thread = header.thread;
  fragment_.digest = header.digest;
  fragment_.leaves = leaves_;
  fragment_.integers = View<int64_t>(&at, header.integers);
  fragment_.floats = View<double>(&at, header.floats);
  const std::span<const uint64_t> lengths = View<uint64_t>(&at, header.strings);
  fragment_.booleans = std::span<const bool>(reinterpret_cast<const bool*>(at), header.booleans);
  at += Padded(header.booleans);
  strings_.clear();
  for (uint64_t length : lengths) {
    strings_.emplace_back(at, length);
    at += length;
  }
  fragment_.strings = strings_;
  return true;
}

}  // namespace msprobe::core
