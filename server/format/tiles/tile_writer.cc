#include "server/format/tiles/tile_writer.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "server/format/storage/block_digest.h"
#include "server/format/tiles/tile_column.h"
#include "server/format/tiles/tile_reader.h"

namespace msprobe::server {

absl::StatusOr<TilePass> TilePass::Make(std::vector<const v1::Block*> blocks, SummaryLookup structure) {
  TilePass pass;
  std::vector<uint64_t> ids;
  for (const v1::Block* block : blocks) {
    auto columns = CheckBlock(*block, structure, [](uint64_t) { return true; });
    if (!columns.ok()) return columns.status();
    if (absl::Status status = CheckDigests(*block, *columns, structure); !status.ok()) return status;
    for (uint32_t i = 0; i < columns->size(); ++i) {
      pass.fragments_.push_back({static_cast<uint32_t>(pass.columns_.size()), i});
      ids.push_back(block->structures(static_cast<int>(block->structure(static_cast<int>(i)))));
    }
    auto& non_finite = pass.non_finite_.emplace_back();
    for (int i = 0; i < block->non_finite_size(); ++i) non_finite.emplace_back(block->non_finite(i).leaf(), i);
    std::sort(non_finite.begin(), non_finite.end());
    pass.columns_.push_back(*std::move(columns));
  }
  pass.blocks_ = std::move(blocks);
  pass.signature_ = XXH3_64bits(ids.data(), ids.size() * sizeof(ids[0]));
  return pass;
}

uint64_t TilePass::structure(size_t fragment) const {
  const v1::Block& block = *blocks_[fragments_[fragment].block];
  return block.structures(static_cast<int>(block.structure(static_cast<int>(fragments_[fragment].index))));
}

class TileWriter {
 public:
  TileWriter(std::span<const TilePass> passes, SummaryLookup structure) : passes_(passes), structure_(structure) {
    at_.resize(passes.size());
    values_.reserve(passes.size());
  }

  std::string Write(size_t first, size_t count) {
    std::string sections;
    std::string sizes;
    for (size_t i = first; i < first + count; ++i) {
      const size_t before = sections.size();
      WriteFragment(i, sections);
      AppendFixed(sizes, static_cast<uint32_t>(sections.size() - before));
    }
    std::string out(1, kTileVersion);
    AppendVarint(out, passes_.size());
    AppendVarint(out, count);
    WriteTables(out);
    out += sizes;
    out += sections;
    return out;
  }

 private:
  using Passes = std::vector<uint32_t>;

  void WriteTables(std::string& out) const {
    AppendVarint(out, structures_.size());
    for (uint64_t id : structures_) AppendFixed(out, id);
    AppendVarint(out, stacks_.size());
    for (uint64_t id : stacks_) AppendFixed(out, id);
    AppendVarint(out, strings_.size());
    for (std::string_view text : strings_) {
      AppendVarint(out, text.size());
      out += text;
    }
    AppendVarint(out, shapes_.size());
    for (const v1::Shape* shape : shapes_) {
      AppendVarint(out, static_cast<uint64_t>(shape->dims_size()));
      for (int64_t dim : shape->dims()) AppendVarint(out, ZigZag(static_cast<uint64_t>(dim)));
    }
  }

  template <typename Get>
  void Integers(size_t count, std::string& out, Get get) {
    values_.clear();
    for (size_t p = 0; p < count; ++p) values_.push_back(static_cast<uint64_t>(get(p)));
    AppendIntegers(out, values_);
  }
  template <typename Number, typename Get>
  void Numbers(const Passes& passes, std::string& out, Get get) {
    std::vector<Number> numbers;
    numbers.reserve(passes.size());
    for (uint32_t p : passes) numbers.push_back(get(p));
    AppendNumbers<Number>(out, numbers);
  }

  const v1::Block& BlockOf(size_t pass, size_t fragment) const {
    return *passes_[pass].blocks_[passes_[pass].fragments_[fragment].block];
  }
  int IndexOf(size_t pass, size_t fragment) const { return static_cast<int>(passes_[pass].fragments_[fragment].index); }

  void WriteFragment(size_t fragment, std::string& out) {
    const size_t passes = passes_.size();
    const uint64_t id = passes_[0].structure(fragment);
    const StructureSummary& summary = *structure_(id);
    AppendVarint(out, Place(structure_places_, structures_, id));
    for (uint32_t count : {summary.leaves, summary.integers, summary.floats, summary.booleans, summary.strings}) {
      AppendVarint(out, count);
    }
    const auto column = [&](auto get) {
      Integers(passes, out, [&](size_t p) { return get(BlockOf(p, fragment), IndexOf(p, fragment)); });
    };
    for (size_t p = 0; p < passes; ++p) {
      const TilePass::Fragment& place = passes_[p].fragments_[fragment];
      at_[p] = passes_[p].columns_[place.block][place.index];
    }
    column([](const v1::Block& block, int i) { return block.count(i); });
    Integers(passes, out, [&](size_t p) { return at_[p].ordinal; });
    column([](const v1::Block& block, int i) { return block.fragment_flags(i); });
    column([&](const v1::Block& block, int i) {
      const uint32_t stack = block.stack(i);
      return stack == 0 ? 0 : 1 + Place(stack_places_, stacks_, block.stacks(static_cast<int>(stack - 1)));
    });
    std::vector<uint64_t> numbers(passes);
    size_t p = 0;
    column([&](const v1::Block& block, int i) -> uint64_t {
      const uint32_t parent = block.parent(i);
      uint64_t& number = numbers[p++];
      if (parent == 0) return 0;
      return 1 + Place(string_places_, strings_, WithoutNumber(block.parents(static_cast<int>(parent - 1)), number));
    });
    AppendIntegers(out, numbers);
    column([](const v1::Block& block, int i) { return block.thread_size() == 0 ? 0 : block.thread(i); });
    std::string leaf;
    for (uint32_t i = 0; i < summary.leaves; ++i) {
      leaf.clear();
      WriteLeaf(fragment, leaf);
      AppendVarint(out, leaf.size());
      out += leaf;
    }
    WriteScalars(fragment, summary, out);
    WriteDigests(fragment, out);
    WriteEdges(fragment, summary, out);
  }

  // Splits "Module.a.forward.12" into "Module.a.forward." and 13. If the text does not end in a plain number, `number`
  // is 0.
  static std::string_view WithoutNumber(std::string_view text, uint64_t& number) {
    size_t digits = text.size();
    while (digits > 0 && text[digits - 1] >= '0' && text[digits - 1] <= '9') --digits;
    const std::string_view tail = text.substr(digits);
    uint64_t value = 0;
    number = 0;
    if (tail.empty() || tail.size() > 18 || (tail.size() > 1 && tail[0] == '0')) return text;
    std::from_chars(tail.data(), tail.data() + tail.size(), value);
    number = value + 1;
    return text.substr(0, digits);
  }

  // Writes the next leaf of every pass and moves at_ past it.
  void WriteLeaf(size_t fragment, std::string& out) {
    const size_t passes = passes_.size();
    const auto flags_of = [&](size_t p) { return BlockOf(p, fragment).leaf_flags(static_cast<int>(at_[p].leaf)); };
    const auto block = [&](uint32_t p) -> const v1::Block& { return BlockOf(p, fragment); };
    Integers(passes, out, [&](size_t p) {
      const v1::Block& of = BlockOf(p, fragment);
      return ShapePlace(of.shapes(static_cast<int>(of.shape(static_cast<int>(at_[p].leaf)))));
    });
    Integers(passes, out, flags_of);
    const auto those = [&](auto takes) {
      Passes found;
      for (uint32_t p = 0; p < passes; ++p) {
        if (takes(flags_of(p))) found.push_back(p);
      }
      return found;
    };
    const auto over = [&](const Passes& chosen, auto get) {
      Integers(chosen.size(), out, [&](size_t i) { return get(chosen[i]); });
    };
    const Passes narrow = those(TakesNarrow);
    for (int i = 0; i < 5; ++i) {
      Numbers<float>(narrow, out, [&](uint32_t p) { return block(p).narrow(static_cast<int>(at_[p].narrow * 5) + i); });
    }
    const Passes wide = those(TakesWide);
    for (int i = 0; i < 5; ++i) {
      Numbers<double>(wide, out, [&](uint32_t p) { return block(p).wide(static_cast<int>(at_[p].wide * 5) + i); });
    }
    const Passes integer = those(TakesInteger);
    for (int i = 0; i < 2; ++i) {
      over(integer, [&](uint32_t p) { return block(p).integer_extremes(static_cast<int>(at_[p].integer * 2) + i); });
    }
    for (int i = 0; i < 3; ++i) {
      Numbers<double>(integer, out,
                      [&](uint32_t p) { return block(p).integer_moments(static_cast<int>(at_[p].integer * 3) + i); });
    }
    over(those([](uint32_t flags) { return (flags & v1::LEAF_STATISTICS) != 0; }),
         [&](uint32_t p) { return block(p).zero_count(static_cast<int>(at_[p].statistics)); });
    Numbers<uint32_t>(those([](uint32_t flags) { return (flags & v1::LEAF_CRC32) != 0; }), out,
                      [&](uint32_t p) { return block(p).crc32(static_cast<int>(at_[p].crc32)); });
    Numbers<uint64_t>(those([](uint32_t flags) { return (flags & v1::LEAF_XOR) != 0; }), out,
                      [&](uint32_t p) { return block(p).xor64(static_cast<int>(at_[p].xor64)); });
    const Passes payload = those([](uint32_t flags) { return (flags & v1::LEAF_PAYLOAD) != 0; });
    const auto payload_of = [&](uint32_t p) -> const v1::PayloadRef& {
      return block(p).payload(static_cast<int>(at_[p].payload));
    };
    Numbers<TilePayloadHash>(payload, out, [&](uint32_t p) {
      TilePayloadHash hash;
      std::copy_n(payload_of(p).hash().begin(), hash.size(), hash.begin());
      return hash;
    });
    over(payload, [&](uint32_t p) { return payload_of(p).size(); });
    WriteNonFinite(fragment, out);
    for (size_t p = 0; p < passes; ++p) TakeLeaf(flags_of(p), at_[p]);
  }

  void WriteNonFinite(size_t fragment, std::string& out) {
    std::string entries;
    uint64_t count = 0;
    for (uint32_t p = 0; p < passes_.size(); ++p) {
      const TilePass& pass = passes_[p];
      const auto& sorted = pass.non_finite_[pass.fragments_[fragment].block];
      for (auto at = std::lower_bound(sorted.begin(), sorted.end(), std::pair<uint32_t, int>(at_[p].leaf, 0));
           at != sorted.end() && at->first == at_[p].leaf; ++at) {
        const v1::NonFinite& entry = BlockOf(p, fragment).non_finite(at->second);
        ++count;
        for (uint64_t number :
             {uint64_t{p}, entry.nan_count(), entry.positive_inf_count(), entry.negative_inf_count()}) {
          AppendVarint(entries, number);
        }
        entries.push_back(static_cast<char>((entry.has_finite_max() ? 1 : 0) | (entry.has_finite_min() ? 2 : 0) |
                                            (entry.has_finite_mean() ? 4 : 0) | (entry.has_finite_norm() ? 8 : 0)));
        if (entry.has_finite_max()) AppendFixed(entries, entry.finite_max());
        if (entry.has_finite_min()) AppendFixed(entries, entry.finite_min());
        if (entry.has_finite_mean()) AppendFixed(entries, entry.finite_mean());
        if (entry.has_finite_norm()) AppendFixed(entries, entry.finite_norm());
      }
    }
    AppendVarint(out, count);
    out += entries;
  }

  // Writes nothing if no pass has a digest, and no edges follow.
  void WriteDigests(size_t fragment, std::string& out) const {
    std::vector<uint32_t> digests;
    bool any = HasEdges(fragment);
    for (size_t p = 0; p < passes_.size(); ++p) {
      const v1::Block& block = BlockOf(p, fragment);
      digests.push_back(block.digest_size() == 0 ? 0 : block.digest(IndexOf(p, fragment)));
      any = any || digests.back() != 0;
    }
    if (any) AppendNumbers<uint32_t>(out, digests);
  }

  bool HasEdges(size_t fragment) const {
    for (size_t p = 0; p < passes_.size(); ++p) {
      if (BlockOf(p, fragment).edge_size() != 0) return true;
    }
    return false;
  }

  // Writes nothing if no pass has edges.
  void WriteEdges(size_t fragment, const StructureSummary& summary, std::string& out) {
    if (!HasEdges(fragment)) return;
    for (size_t p = 0; p < passes_.size(); ++p) {
      const TilePass::Fragment& place = passes_[p].fragments_[fragment];
      at_[p] = passes_[p].columns_[place.block][place.index];
    }
    for (uint32_t i = 0; i < summary.leaves; ++i) {
      Passes named;
      Integers(passes_.size(), out, [&](size_t p) -> uint64_t {
        const v1::Block& block = BlockOf(p, fragment);
        const uint32_t kind = block.edge_size() == 0 ? 0 : block.edge(static_cast<int>(at_[p].leaf++));
        if (NamesProducer(kind)) named.push_back(static_cast<uint32_t>(p));
        return kind;
      });
      Integers(named.size(), out, [&](size_t n) {
        return BlockOf(named[n], fragment).edge_distance(static_cast<int>(at_[named[n]].producers));
      });
      Integers(named.size(), out, [&](size_t n) {
        return BlockOf(named[n], fragment).edge_leaf(static_cast<int>(at_[named[n]].producers++));
      });
    }
  }

  void WriteScalars(size_t fragment, const StructureSummary& summary, std::string& out) {
    const size_t passes = passes_.size();
    const auto start = [&](size_t p) -> const FragmentColumns& {
      const TilePass::Fragment& place = passes_[p].fragments_[fragment];
      return passes_[p].columns_[place.block][place.index];
    };
    for (uint32_t i = 0; i < summary.integers; ++i) {
      Integers(passes, out,
               [&](size_t p) { return BlockOf(p, fragment).integers(static_cast<int>(start(p).integers + i)); });
    }
    for (uint32_t i = 0; i < summary.floats; ++i) {
      std::vector<double> numbers;
      for (size_t p = 0; p < passes; ++p) {
        numbers.push_back(BlockOf(p, fragment).floats(static_cast<int>(start(p).floats + i)));
      }
      AppendNumbers<double>(out, numbers);
    }
    for (uint32_t i = 0; i < summary.booleans; ++i) {
      Integers(passes, out, [&](size_t p) -> uint64_t {
        return BlockOf(p, fragment).booleans(static_cast<int>(start(p).booleans + i)) ? 1 : 0;
      });
    }
    for (uint32_t i = 0; i < summary.strings; ++i) {
      Integers(passes, out, [&](size_t p) {
        return Place(string_places_, strings_,
                     std::string_view(BlockOf(p, fragment).strings(static_cast<int>(start(p).strings + i))));
      });
    }
  }

  template <typename Key>
  static uint64_t Place(absl::flat_hash_map<Key, uint64_t>& places, std::vector<Key>& table, Key key) {
    const auto [found, added] = places.try_emplace(key, table.size());
    if (added) table.push_back(key);
    return found->second;
  }
  uint64_t ShapePlace(const v1::Shape& shape) {
    const std::string_view key(reinterpret_cast<const char*>(shape.dims().data()),
                               sizeof(int64_t) * static_cast<size_t>(shape.dims_size()));
    const auto [found, added] = shape_places_.try_emplace(key, shapes_.size());
    if (added) shapes_.push_back(&shape);
    return found->second;
  }

  const std::span<const TilePass> passes_;
  const SummaryLookup structure_;
  std::vector<FragmentColumns> at_;  // for each pass, the place after the leaves that have been written
  std::vector<uint64_t> values_;
  std::vector<uint64_t> structures_;
  std::vector<uint64_t> stacks_;
  std::vector<std::string_view> strings_;
  std::vector<const v1::Shape*> shapes_;
  absl::flat_hash_map<uint64_t, uint64_t> structure_places_;
  absl::flat_hash_map<uint64_t, uint64_t> stack_places_;
  absl::flat_hash_map<std::string_view, uint64_t> string_places_;
  absl::flat_hash_map<std::string_view, uint64_t> shape_places_;
};

std::string EncodeTile(std::span<const TilePass> passes, size_t first, size_t count, SummaryLookup structure) {
  return TileWriter(passes, structure).Write(first, count);
}

}  // namespace msprobe::server
