#include "agent/core/fragment_queue.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace msprobe::core {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;
constexpr size_t kSpareChunks = 4;

struct Header {
  uint64_t size;  // of the entry, this header included
  uint64_t ordinal;
  uint32_t is_marker;
  uint32_t marker_size;
  uint32_t step, token, structure, count, flags, stack, parent, thread;
  uint32_t leaves, dims, integers, floats, booleans, strings;
};

// Leaf without what owns or points.
struct PackedLeaf {
  double max, min, mean, norm, variance;
  int64_t integer_max, integer_min;
  uint64_t zero_count, nan_count, positive_inf_count, negative_inf_count;
  double finite_max, finite_min, finite_mean, finite_norm;
  uint64_t xor64;
  uint32_t crc32;
  uint32_t dims;
  bool has_statistics, is_integer, is_wide, reused, has_finite, has_crc32, has_xor64, has_payload;
  uint64_t has_pending;
};
static_assert(std::is_trivially_copyable_v<PackedLeaf> && sizeof(Header) % 8 == 0 && sizeof(PackedLeaf) % 8 == 0);

constexpr size_t Padded(size_t size) { return (size + 7) & ~size_t{7}; }

struct Sizes {
  size_t dims = 0, string_bytes = 0, total = 0;
};

Sizes Measure(const Fragment& fragment) {
  Sizes sizes;
  for (const Leaf& leaf : fragment.leaves) sizes.dims += leaf.shape.size();
  for (std::string_view text : fragment.strings) sizes.string_bytes += text.size();
  sizes.total = sizeof(Header) + fragment.leaves.size() * sizeof(PackedLeaf) +
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
                    .has_pending = leaf.pending != nullptr};
}

void Unpack(const PackedLeaf& packed, Leaf* leaf) {
  leaf->has_statistics = packed.has_statistics;
  leaf->is_integer = packed.is_integer;
  leaf->is_wide = packed.is_wide;
  leaf->reused = packed.reused;
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
  leaf->has_finite = packed.has_finite;
  leaf->finite_max = packed.finite_max;
  leaf->finite_min = packed.finite_min;
  leaf->finite_mean = packed.finite_mean;
  leaf->finite_norm = packed.finite_norm;
  leaf->crc32 = packed.has_crc32 ? std::optional<uint32_t>(packed.crc32) : std::nullopt;
  leaf->xor64 = packed.has_xor64 ? std::optional<uint64_t>(packed.xor64) : std::nullopt;
  leaf->payload.reset();
  leaf->pending.reset();
}

void Encode(const Fragment& fragment, const Sizes& sizes, char* out, Chunk* chunk) {
  const Header header{.size = sizes.total,
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
                      .strings = static_cast<uint32_t>(fragment.strings.size())};
  out = Put(out, &header, sizeof(header));
  for (const Leaf& leaf : fragment.leaves) {
    const PackedLeaf packed = Pack(leaf);
    out = Put(out, &packed, sizeof(packed));
    if (leaf.payload != nullptr) chunk->payloads.push_back(leaf.payload);
    if (leaf.pending != nullptr) chunk->pendings.push_back(leaf.pending);
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

// Chunks begin at a page, aligned for every type here, and entries are multiples of eight.
template <typename T>
std::span<const T> View(const char** at, size_t count) {
  const std::span<const T> view(reinterpret_cast<const T*>(*at), count);
  *at += view.size_bytes();
  return view;
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
    if (!spare_.empty() && size <= kChunkBytes) {
      open_ = std::move(spare_.back());
      spare_.pop_back();
    } else {
      open_.memory = MappedMemory::Allocate(std::max(size, kChunkBytes));
      if (open_.memory.empty()) throw std::bad_alloc();
    }
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

void FragmentQueue::PutMarker(const v1::Marker& marker) {
  const size_t marker_size = marker.ByteSizeLong();
  Header header{};
  header.size = sizeof(Header) + Padded(marker_size);
  header.is_marker = 1;
  header.marker_size = static_cast<uint32_t>(marker_size);
  char* const out = Put(Reserve(header.size), &header, sizeof(header));
  marker.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(out));
  urgent_ = true;
}

void FragmentQueue::PutLosses(uint32_t step) {
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
}

void FragmentQueue::Append(const Fragment& fragment) {
  const Sizes sizes = Measure(fragment);
  MutexLock lock(&mu_);
  PutLosses(fragment.step);
  char* const out = Reserve(sizes.total);
  open_.charged += sizes.total;
  Encode(fragment, sizes, out, &open_);
}

void FragmentQueue::AppendMarker(const v1::Marker& marker) {
  MutexLock lock(&mu_);
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
  const auto same = std::find_if(losses_.begin(), losses_.end(), [&](const Loss& other) {
    return other.step == loss.step && other.reason == loss.reason;
  });
  if (same == losses_.end()) {
    losses_.push_back(loss);
  } else {
    same->fragments += loss.fragments;
    same->payloads += loss.payloads;
  }
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
  if (chunk.memory.size() != kChunkBytes) return;
  chunk.size = 0;
  chunk.charged = 0;
  chunk.entries = 0;
  chunk.payloads.clear();
  chunk.pendings.clear();
  MutexLock lock(&mu_);
  if (spare_.size() < kSpareChunks) spare_.push_back(std::move(chunk));
}

bool ChunkReader::Next() {
  if (offset_ >= chunk_->size) return false;
  const char* at = chunk_->bytes() + offset_;
  const Header& header = View<Header>(&at, 1)[0];
  offset_ += header.size;
  is_marker_ = header.is_marker != 0;
  if (is_marker_) {
    marker_ = std::string_view(at, header.marker_size);
    return true;
  }
  const std::span<const PackedLeaf> packed = View<PackedLeaf>(&at, header.leaves);
  std::span<const int64_t> dims = View<int64_t>(&at, header.dims);
  leaves_.resize(packed.size());
  for (size_t i = 0; i < packed.size(); ++i) {
    Unpack(packed[i], &leaves_[i]);
    leaves_[i].shape = dims.first(packed[i].dims);
    dims = dims.subspan(packed[i].dims);
    if (packed[i].has_payload) leaves_[i].payload = std::move(chunk_->payloads[next_payload_++]);
    if (packed[i].has_pending) leaves_[i].pending = std::move(chunk_->pendings[next_pending_++]);
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
