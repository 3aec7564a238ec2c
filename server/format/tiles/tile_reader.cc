#include "server/format/tiles/tile_reader.h"

#include <atomic>
#include <utility>

#include "server/format/cat.h"
#include "server/format/storage/block_columns.h"
#include "server/format/tiles/tile_column.h"

namespace msprobe::server {
namespace {

absl::Status Broken(std::string_view what) { return absl::DataLossError(Cat("a tile does not hold together: ", what)); }

// The place of a pass in a column that holds values of some passes only.
struct Among {
  uint64_t count = 0;  // passes with a value in the column
  uint64_t index = 0;  // those of them before this pass
  bool taken = false;  // this pass has a value
};

template <typename Takes>
Among AmongOf(const std::vector<uint32_t>& flags, uint32_t pass, Takes takes) {
  Among among;
  for (uint32_t p = 0; p < flags.size(); ++p) {
    if (p == pass) {
      among.index = among.count;
      among.taken = takes(flags[p]);
    }
    among.count += takes(flags[p]) ? 1 : 0;
  }
  return among;
}

}  // namespace

void BlockBuilder::Begin(uint32_t step, uint32_t token) {
  Take();
  block_.set_step(step);
  block_.set_token(token);
}

v1::Block BlockBuilder::Take() {
  if (!threads_) block_.clear_thread();
  if (!digests_) block_.clear_digest();
  if (!edges_) block_.clear_edge();
  v1::Block taken = std::exchange(block_, {});
  static std::atomic<uint64_t> serials = 0;
  serial_ = ++serials;
  ordinal_ = 0;
  threads_ = false;
  digests_ = false;
  edges_ = false;
  structures_.clear();
  stacks_.clear();
  parents_.clear();
  shapes_.clear();
  return taken;
}

void BlockBuilder::Ordinal(uint64_t ordinal) {
  block_.add_ordinal_delta(static_cast<int64_t>(ordinal - ordinal_));
  ordinal_ = ordinal;
}

void BlockBuilder::Thread(uint32_t thread) {
  block_.add_thread(thread);
  threads_ = threads_ || thread != 0;
}

void BlockBuilder::Digest(uint32_t digest) {
  block_.add_digest(digest);
  digests_ = digests_ || digest != 0;
}

void BlockBuilder::Edge(uint32_t kind) {
  block_.add_edge(kind);
  edges_ = edges_ || kind != 0;
}

uint32_t BlockBuilder::Structure(uint64_t id) {
  const auto [found, added] = structures_.try_emplace(id, static_cast<uint32_t>(block_.structures_size()));
  if (added) block_.add_structures(id);
  return found->second;
}

uint32_t BlockBuilder::Stack(uint64_t id) {
  const auto [found, added] = stacks_.try_emplace(id, static_cast<uint32_t>(block_.stacks_size()));
  if (added) block_.add_stacks(id);
  return found->second;
}

uint32_t BlockBuilder::Parent(std::string text) {
  const auto [found, added] = parents_.try_emplace(text, static_cast<uint32_t>(block_.parents_size()));
  if (added) block_.add_parents(std::move(text));
  return found->second;
}

uint32_t BlockBuilder::Shape(const std::vector<int64_t>& dims) {
  std::string key(reinterpret_cast<const char*>(dims.data()), dims.size() * sizeof(dims[0]));
  const auto [found, added] = shapes_.try_emplace(std::move(key), static_cast<uint32_t>(block_.shapes_size()));
  if (added) block_.add_shapes()->mutable_dims()->Assign(dims.begin(), dims.end());
  return found->second;
}

absl::StatusOr<TileReader> TileReader::Open(std::string_view bytes) {
  TileReader tile;
  ByteCursor in(bytes);
  if (const uint8_t version = in.Byte(); version != kTileVersion) {
    return absl::DataLossError(Cat("a tile has version ", int{version}, ", this server reads ", int{kTileVersion}));
  }
  const uint64_t passes = in.Varint();
  const uint64_t fragments = in.Varint();
  // No table has more entries than there are bytes left.
  const auto sized = [&](auto& table, uint64_t size) {
    if (size > in.left()) return false;
    table.resize(size);
    return true;
  };
  if (!sized(tile.structures_, in.Varint())) return Broken("its structures");
  for (uint64_t& id : tile.structures_) id = in.Fixed<uint64_t>();
  if (!sized(tile.stacks_, in.Varint())) return Broken("its stacks");
  for (uint64_t& id : tile.stacks_) id = in.Fixed<uint64_t>();
  if (!sized(tile.strings_, in.Varint())) return Broken("its strings");
  for (std::string_view& text : tile.strings_) text = in.Text();
  if (!sized(tile.shapes_, in.Varint())) return Broken("its shapes");
  for (std::vector<int64_t>& dims : tile.shapes_) {
    if (!sized(dims, in.Varint())) return Broken("a shape");
    for (int64_t& dim : dims) dim = static_cast<int64_t>(UnZigZag(in.Varint()));
  }
  if (!sized(tile.sections_, fragments) || passes > (uint64_t{1} << 20)) return Broken("its size");
  const char* const table = in.Raw(fragments * sizeof(uint32_t));
  if (table == nullptr) return Broken("its size");
  ByteCursor sizes(std::string_view(table, fragments * sizeof(uint32_t)));
  for (std::string_view& section : tile.sections_) {
    const uint32_t size = sizes.Fixed<uint32_t>();
    const char* const start = in.Raw(size);
    if (start == nullptr) return Broken("a section");
    section = {start, size};
  }
  if (in.failed() || in.left() > 0) return Broken("its length");
  tile.passes_ = static_cast<uint32_t>(passes);
  return tile;
}

TileReader::Places& TileReader::PlacesIn(const BlockBuilder& out) {
  if (places_.serial != out.serial_) {
    places_.serial = out.serial_;
    places_.structures.assign(structures_.size(), 0);
    places_.stacks.assign(stacks_.size(), 0);
    places_.shapes.assign(shapes_.size(), 0);
  }
  return places_;
}

absl::Status TileReader::AppendFragments(uint32_t first, uint32_t count, uint32_t pass, BlockBuilder& out) {
  if (pass >= passes_ || first > sections_.size() || count > sections_.size() - first) return Broken("its size");
  for (uint32_t i = first; i < first + count; ++i) {
    if (absl::Status status = AppendFragment(sections_[i], pass, out); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TileReader::AppendFragment(std::string_view section, uint32_t pass, BlockBuilder& out) {
  Places& places = PlacesIn(out);
  v1::Block& block = out.block_;
  ByteCursor in(section);
  const uint64_t structure = in.Varint();
  const uint64_t leaves = in.Varint();
  const uint64_t integers = in.Varint();
  const uint64_t floats = in.Varint();
  const uint64_t booleans = in.Varint();
  const uint64_t strings = in.Varint();
  if (structure >= structures_.size()) return Broken("a structure");
  uint32_t& structure_place = places.structures[structure];
  if (structure_place == 0) structure_place = out.Structure(structures_[structure]) + 1;
  block.add_structure(structure_place - 1);
  block.add_count(static_cast<uint32_t>(IntegerAt(in, passes_, pass)));
  out.Ordinal(IntegerAt(in, passes_, pass));
  block.add_fragment_flags(static_cast<uint32_t>(IntegerAt(in, passes_, pass)));
  const uint64_t stack = IntegerAt(in, passes_, pass);
  if (stack > stacks_.size()) return Broken("a stack");
  if (stack != 0) {
    uint32_t& place = places.stacks[stack - 1];
    if (place == 0) place = out.Stack(stacks_[stack - 1]) + 1;
  }
  block.add_stack(stack == 0 ? 0 : places.stacks[stack - 1]);
  const uint64_t parent = IntegerAt(in, passes_, pass);
  const uint64_t number = IntegerAt(in, passes_, pass);
  if (parent > strings_.size()) return Broken("a parent");
  if (parent != 0) {
    std::string text(strings_[parent - 1]);
    if (number != 0) text += std::to_string(number - 1);
    block.add_parent(out.Parent(std::move(text)) + 1);
  } else {
    block.add_parent(0);
  }
  out.Thread(static_cast<uint32_t>(IntegerAt(in, passes_, pass)));
  for (uint64_t i = 0; i < leaves && !in.failed(); ++i) {
    if (absl::Status status = ReadLeaf(in.Text(), pass, out); !status.ok()) return status;
  }
  for (uint64_t i = 0; i < integers && !in.failed(); ++i) {
    block.add_integers(static_cast<int64_t>(IntegerAt(in, passes_, pass)));
  }
  for (uint64_t i = 0; i < floats && !in.failed(); ++i) block.add_floats(NumberAt<double>(in, passes_, pass));
  for (uint64_t i = 0; i < booleans && !in.failed(); ++i) block.add_booleans(IntegerAt(in, passes_, pass) != 0);
  for (uint64_t i = 0; i < strings && !in.failed(); ++i) {
    const uint64_t text = IntegerAt(in, passes_, pass);
    if (text >= strings_.size()) return Broken("a string");
    block.add_strings(std::string(strings_[text]));
  }
  out.Digest(in.left() > 0 ? NumberAt<uint32_t>(in, passes_, pass) : 0);
  const bool has_edges = in.left() > 0;
  for (uint64_t i = 0; i < leaves && !in.failed(); ++i) {
    if (has_edges) {
      ReadEdge(in, pass, out);
    } else {
      out.Edge(0);
    }
  }
  return in.failed() ? Broken("a fragment") : absl::OkStatus();
}

absl::Status TileReader::AppendLeaf(uint32_t fragment, uint32_t leaf, uint32_t pass, BlockBuilder& out) {
  if (fragment >= sections_.size() || pass >= passes_) return Broken("its size");
  ByteCursor in(sections_[fragment]);
  in.Varint();
  const uint64_t leaves = in.Varint();
  if (leaf >= leaves) return Broken("the number of leaves");
  for (int i = 0; i < 4; ++i) in.Varint();
  for (int i = 0; i < 7; ++i) IntegerAt(in, passes_, pass);
  for (uint32_t i = 0; i < leaf; ++i) in.Text();
  const std::string_view bytes = in.Text();
  return in.failed() ? Broken("a fragment") : ReadLeaf(bytes, pass, out);
}

absl::Status TileReader::AppendShape(ByteCursor& in, uint32_t pass, BlockBuilder& out) {
  const uint64_t shape = IntegerAt(in, passes_, pass);
  if (shape >= shapes_.size()) return Broken("a shape");
  uint32_t& place = PlacesIn(out).shapes[shape];
  if (place == 0) place = out.Shape(shapes_[shape]) + 1;
  out.block_.add_shape(place - 1);
  return absl::OkStatus();
}

bool TileReader::ReadFlags(ByteCursor& in, uint32_t pass, uint32_t& flags) {
  ByteCursor ahead = in;
  const uint8_t mode = ahead.Byte();
  flags = static_cast<uint32_t>(UnZigZag(ahead.Varint()));
  if (mode == 0) {
    in = ahead;
    return true;
  }
  flags_.resize(passes_);
  const ByteCursor start = in;
  for (uint32_t p = 0; p < passes_; ++p) {
    ByteCursor again = start;
    flags_[p] = static_cast<uint32_t>(IntegerAt(again, passes_, p));
    in = again;
  }
  flags = flags_[pass];
  return false;
}

absl::Status TileReader::ReadLeaf(std::string_view bytes, uint32_t pass, BlockBuilder& out) {
  v1::Block& block = out.block_;
  ByteCursor in(bytes);
  if (absl::Status status = AppendShape(in, pass, out); !status.ok()) return status;
  // Nearly always all passes have the same flags. Then a column has a value for all passes or for none.
  uint32_t flags = 0;
  const bool constant = ReadFlags(in, pass, flags);
  block.add_leaf_flags(flags);
  const auto among = [&](auto takes) {
    if (constant) return takes(flags) ? Among{passes_, pass, true} : Among{};
    return AmongOf(flags_, pass, takes);
  };
  const auto flagged = [&](uint32_t bit) { return among([bit](uint32_t of) { return (of & bit) != 0; }); };

  if (const Among a = among(TakesNarrow); a.count > 0) {
    for (int i = 0; i < 5; ++i) {
      const float number = NumberAt<float>(in, a.count, a.index);
      if (a.taken) block.add_narrow(number);
    }
  }
  if (const Among a = among(TakesWide); a.count > 0) {
    for (int i = 0; i < 5; ++i) {
      const double number = NumberAt<double>(in, a.count, a.index);
      if (a.taken) block.add_wide(number);
    }
  }
  if (const Among a = among(TakesInteger); a.count > 0) {
    for (int i = 0; i < 2; ++i) {
      const auto number = static_cast<int64_t>(IntegerAt(in, a.count, a.index));
      if (a.taken) block.add_integer_extremes(number);
    }
    for (int i = 0; i < 3; ++i) {
      const double number = NumberAt<double>(in, a.count, a.index);
      if (a.taken) block.add_integer_moments(number);
    }
  }
  if (const Among a = flagged(v1::LEAF_STATISTICS); a.count > 0) {
    const uint64_t zeros = IntegerAt(in, a.count, a.index);
    if (a.taken) block.add_zero_count(zeros);
  }
  if (const Among a = flagged(v1::LEAF_CRC32); a.count > 0) {
    const auto crc = NumberAt<uint32_t>(in, a.count, a.index);
    if (a.taken) block.add_crc32(crc);
  }
  if (const Among a = flagged(v1::LEAF_XOR); a.count > 0) {
    const auto xored = NumberAt<uint64_t>(in, a.count, a.index);
    if (a.taken) block.add_xor64(xored);
  }
  if (const Among a = flagged(v1::LEAF_PAYLOAD); a.count > 0) {
    const auto hash = NumberAt<TilePayloadHash>(in, a.count, a.index);
    const uint64_t size = IntegerAt(in, a.count, a.index);
    if (a.taken) {
      v1::PayloadRef* payload = block.add_payload();
      payload->set_hash(std::string(hash.data(), hash.size()));
      payload->set_size(size);
    }
  }
  ReadNonFinite(in, pass, out);
  return in.failed() ? Broken("a leaf") : absl::OkStatus();
}

void TileReader::ReadEdge(ByteCursor& in, uint32_t pass, BlockBuilder& out) {
  uint32_t kind = 0;
  const bool constant = ReadFlags(in, pass, kind);
  Among among;
  if (!constant) {
    among = AmongOf(flags_, pass, NamesProducer);
  } else if (NamesProducer(kind)) {
    among = {passes_, pass, true};
  }
  const auto distance = static_cast<int64_t>(IntegerAt(in, among.count, among.index));
  const auto leaf = static_cast<uint32_t>(IntegerAt(in, among.count, among.index));
  out.Edge(kind);
  if (!among.taken) return;
  out.block_.add_edge_distance(distance);
  out.block_.add_edge_leaf(leaf);
}

void TileReader::ReadNonFinite(ByteCursor& in, uint32_t pass, BlockBuilder& out) {
  const uint64_t count = in.Varint();
  for (uint64_t i = 0; i < count && !in.failed(); ++i) {
    const uint64_t of = in.Varint();
    v1::NonFinite entry;
    entry.set_leaf(static_cast<uint32_t>(out.block_.shape_size() - 1));
    entry.set_nan_count(in.Varint());
    entry.set_positive_inf_count(in.Varint());
    entry.set_negative_inf_count(in.Varint());
    const uint8_t has = in.Byte();
    if (has & 1) entry.set_finite_max(in.Fixed<double>());
    if (has & 2) entry.set_finite_min(in.Fixed<double>());
    if (has & 4) entry.set_finite_mean(in.Fixed<double>());
    if (has & 8) entry.set_finite_norm(in.Fixed<double>());
    if (of == pass) *out.block_.add_non_finite() = std::move(entry);
  }
}

}  // namespace msprobe::server
