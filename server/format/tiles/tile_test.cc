#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string_view>

#include "server/format/storage/repeated_pass.h"
#include "server/format/tiles/tile_column.h"
#include "server/format/tiles/tile_reader.h"
#include "server/format/tiles/tile_writer.h"
#include "server/format/tiles/tiled_fragment.h"

namespace msprobe::server {
namespace {

// Compares columns bit for bit, and tables by the values that are looked up in them, because a tile does not keep their
// order.
void ExpectSame(const v1::Block& got, const v1::Block& wanted) {
  const auto bare = [](v1::Block block) {
    for (auto* places :
         {block.mutable_structure(), block.mutable_stack(), block.mutable_parent(), block.mutable_shape()})
      places->Clear();
    block.clear_structures();
    block.clear_stacks();
    block.clear_parents();
    block.clear_shapes();
    return block.SerializeAsString();
  };
  EXPECT_EQ(bare(got), bare(wanted));
  ASSERT_EQ(got.structure_size(), wanted.structure_size());
  for (int i = 0; i < got.structure_size(); ++i) {
    const auto structure = [&](const v1::Block& of) { return of.structures(static_cast<int>(of.structure(i))); };
    const auto stack = [&](const v1::Block& of) {
      return of.stack(i) == 0 ? 0 : of.stacks(static_cast<int>(of.stack(i)) - 1);
    };
    const auto parent = [&](const v1::Block& of) {
      return of.parent(i) == 0 ? std::string("none") : of.parents(static_cast<int>(of.parent(i)) - 1);
    };
    ASSERT_EQ(structure(got), structure(wanted)) << i;
    ASSERT_EQ(stack(got), stack(wanted)) << i;
    ASSERT_EQ(parent(got), parent(wanted)) << i;
  }
  ASSERT_EQ(got.shape_size(), wanted.shape_size());
  for (int i = 0; i < got.shape_size(); ++i) {
    ASSERT_EQ(got.shapes(static_cast<int>(got.shape(i))).SerializeAsString(),
              wanted.shapes(static_cast<int>(wanted.shape(i))).SerializeAsString())
        << i;
  }
}

class TileTest : public testing::Test {
 protected:
  void Fill(const RepeatedPass& pass, uint32_t passes, uint32_t calls_a_block = 1'000'000, uint32_t tokens = 3) {
    for (const v1::Definition& definition : pass.definitions()) {
      if (!definition.has_structure()) continue;
      v1::Structure structure;
      ASSERT_TRUE(structure.ParseFromString(definition.structure()));
      summaries_[definition.id()] = *Summarize(structure);
    }
    for (uint32_t step = 0; step < passes; ++step) blocks_.push_back(pass.Blocks(step, step % tokens, calls_a_block));
    Make();
  }
  void Make() {
    passes_.clear();
    for (const std::vector<v1::Block>& blocks : blocks_) {
      std::vector<const v1::Block*> borrowed;
      for (const v1::Block& block : blocks) borrowed.push_back(&block);
      auto pass = TilePass::Make(borrowed, Lookup());
      ASSERT_TRUE(pass.ok()) << pass.status();
      passes_.push_back(*std::move(pass));
    }
  }
  std::function<const StructureSummary*(uint64_t)> Lookup() {
    return [this](uint64_t id) { return summaries_.contains(id) ? &summaries_.at(id) : nullptr; };
  }
  // Encodes every block of every pass into tiles of `fragments` fragments and expects to read the same.
  void ExpectComesBack(size_t fragments) {
    const auto lookup = Lookup();
    std::vector<std::string> tiles;
    for (size_t first = 0; first < passes_[0].fragments(); first += fragments) {
      tiles.push_back(EncodeTile(passes_, first, std::min(fragments, passes_[0].fragments() - first), lookup));
    }
    BlockBuilder builder;
    for (uint32_t p = 0; p < passes_.size(); ++p) {
      size_t at = 0;
      for (const v1::Block& wanted : blocks_[p]) {
        builder.Begin(wanted.step(), wanted.token());
        for (size_t end = at + static_cast<size_t>(wanted.structure_size()); at < end;) {
          auto tile = TileReader::Open(tiles[at / fragments]);
          ASSERT_TRUE(tile.ok()) << tile.status();
          const size_t count = std::min(fragments - at % fragments, end - at);
          absl::Status status =
              tile->AppendFragments(static_cast<uint32_t>(at % fragments), static_cast<uint32_t>(count), p, builder);
          ASSERT_TRUE(status.ok()) << status;
          at += count;
        }
        ExpectSame(builder.Take(), wanted);
      }
    }
  }

  // Compares every column of every leaf and scalar, read as a whole, with the passes one by one.
  void ExpectColumnsHoldThePasses() {
    const std::string bytes = EncodeTile(passes_, 0, passes_[0].fragments(), Lookup());
    auto tile = TileReader::Open(bytes);
    ASSERT_TRUE(tile.ok()) << tile.status();
    BlockBuilder builder;
    TiledFragment fragment;
    const auto expect = [](const auto& columns, size_t pass, const auto& wanted, int first) {
      for (size_t i = 0; i < columns.size(); ++i) {
        const auto value = wanted.Get(first + static_cast<int>(i));
        const auto got = columns[i][pass];
        ASSERT_EQ(std::string_view(reinterpret_cast<const char*>(&got), sizeof(got)),
                  std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)))
            << i;
      }
    };
    for (uint32_t i = 0; i < tile->fragments(); ++i) {
      ASSERT_TRUE(fragment.Read(*tile, i).ok());
      for (uint32_t pass = 0; pass < passes_.size(); ++pass) {
        builder.Begin(0, 0);
        ASSERT_TRUE(tile->AppendFragments(i, 1, pass, builder).ok());
        const v1::Block block = builder.Take();
        ASSERT_EQ(fragment.structure(), block.structures(0));
        expect(fragment.integers(), pass, block.integers(), 0);
        expect(fragment.floats(), pass, block.floats(), 0);
        ASSERT_EQ(fragment.leaves(), static_cast<size_t>(block.shape_size()));
        FragmentColumns at;
        for (int leaf = 0; leaf < block.shape_size(); ++leaf) {
          const TiledFragment::Leaf& got = fragment.leaf(static_cast<size_t>(leaf));
          const uint32_t flags = block.leaf_flags(leaf);
          ASSERT_EQ(got.flags[pass], flags);
          const auto& dims = block.shapes(static_cast<int>(block.shape(leaf))).dims();
          ASSERT_THAT(tile->shapes()[got.shape[pass]], testing::ElementsAreArray(dims));
          if (TakesNarrow(flags)) expect(got.narrow, pass, block.narrow(), static_cast<int>(at.narrow * 5));
          if (TakesWide(flags)) expect(got.wide, pass, block.wide(), static_cast<int>(at.wide * 5));
          if (TakesInteger(flags)) {
            expect(got.extremes, pass, block.integer_extremes(), static_cast<int>(at.integer * 2));
            expect(got.moments, pass, block.integer_moments(), static_cast<int>(at.integer * 3));
          }
          if (flags & v1::LEAF_CRC32) {
            ASSERT_EQ(got.crc32[pass], block.crc32(static_cast<int>(at.crc32)));
          }
          if (flags & v1::LEAF_XOR) {
            ASSERT_EQ(got.xor64[pass], block.xor64(static_cast<int>(at.xor64)));
          }
          TakeLeaf(flags, at);
        }
      }
    }
  }

  std::map<uint64_t, StructureSummary> summaries_;
  std::vector<std::vector<v1::Block>> blocks_;
  std::vector<TilePass> passes_;
};

TEST(TileColumn, EveryValueOfEveryKindOfColumnComesBack) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const std::vector<std::vector<uint64_t>> columns = {{7},
                                                      {5, 5, 5},
                                                      {10, 13, 16, 19},
                                                      {9, 6, 3, 0, kMax - 2},
                                                      {1u << 30, (1u << 30) + 1, (1u << 30) + 1},
                                                      {3, 1000, 4, 77},
                                                      {kMax, 0, uint64_t{1} << 63, 1}};
  for (const auto& column : columns) {
    std::string bytes;
    AppendIntegers(bytes, column);
    bytes += "rest";
    for (size_t i = 0; i < column.size(); ++i) {
      ByteCursor in(bytes);
      EXPECT_EQ(IntegerAt(in, column.size(), i), column[i]);
      EXPECT_EQ(in.left(), 4u) << "read to its end, wherever the value stands";
      EXPECT_FALSE(in.failed());
    }
  }
}

TEST(TileColumn, RepetitionCostsNothing) {
  std::string same;
  AppendIntegers(same, std::vector<uint64_t>(48, 3));
  EXPECT_EQ(same.size(), 2u);
  std::string steps;
  std::vector<uint64_t> counts;
  for (uint64_t i = 0; i < 48; ++i) counts.push_back(17 * i);
  AppendIntegers(steps, counts);
  EXPECT_EQ(steps.size(), 3u);
}

// A constant column has fewer bytes than there are passes.
TEST_F(TileTest, WhatNeverChangesComesBackForEveryPass) {
  const RepeatedPass pass({.calls = 30, .variety = true});
  Fill(pass, 1);
  const std::vector<v1::Block> same = blocks_[0];
  for (uint32_t step = 1; step < 200; ++step) {
    blocks_.push_back(same);
    for (v1::Block& block : blocks_.back()) block.set_step(step);
  }
  Make();
  ExpectComesBack(7);
  ExpectColumnsHoldThePasses();
}

TEST_F(TileTest, PassesOfAllKindsOfLeavesComeBackBitForBit) {
  Fill(RepeatedPass({.calls = 90, .variety = true, .varying_shapes = true}), 48, 7);
  ExpectComesBack(12);
}

TEST_F(TileTest, OnePassAndOneFragmentATile) {
  Fill(RepeatedPass({.calls = 9, .variety = true}), 1);
  ExpectComesBack(1);
}

TEST_F(TileTest, ThreadsStacksAndOddParentsComeBack) {
  Fill(RepeatedPass({.calls = 5}), 4);
  for (size_t p = 0; p < blocks_.size(); ++p) {
    v1::Block& block = blocks_[p][0];
    for (int i = 0; i < block.structure_size(); ++i) block.add_thread(static_cast<uint32_t>(i % 2 + p));
    block.add_stacks(99 + p);
    block.set_stack(1, 2);
    for (const char* parent : {"", "007", "Module.a.18446744073709551616", "12", "Module.b.0", "no number"}) {
      block.add_parents(parent);
      block.set_parent(block.parents_size(), static_cast<uint32_t>(block.parents_size()));
    }
    block.set_ordinal_delta(3, -2);
  }
  Make();
  ExpectComesBack(4);
}

// A pass without edges (of an earlier agent), passes with the same, and passes with others.
TEST_F(TileTest, EdgesComeBackAndRepeatingOnesCostAByteOrTwo) {
  Fill(RepeatedPass({.calls = 12}), 48, 5, 1);
  const size_t bare = EncodeTile(passes_, 0, 24, Lookup()).size();
  for (size_t p = 1; p < blocks_.size(); ++p) {
    int at = 0;
    for (v1::Block& block : blocks_[p]) {
      for (int i = 0; i < block.leaf_flags_size(); ++i, ++at) {
        uint32_t kind = static_cast<uint32_t>(at % 6);
        if (p == 7 && at % 5 == 0) kind = v1::EDGE_CHANGED;
        block.add_edge(kind);
        if (!NamesProducer(kind)) continue;
        block.add_edge_distance(p == 9 ? -at : at);
        block.add_edge_leaf(static_cast<uint32_t>(at % 3));
      }
    }
  }
  Make();
  ExpectComesBack(5);
  ExpectColumnsHoldThePasses();
  for (size_t p : {0U, 7U, 9U}) blocks_[p] = blocks_[1];
  Make();
  const size_t with_edges = EncodeTile(passes_, 0, 24, Lookup()).size();
  EXPECT_LT(with_edges - bare, 24 * 12) << "for 24 leaves of 48 passes, five bytes of each for the digest";
}

TEST_F(TileTest, OneLeafIsReadAlone) {
  Fill(RepeatedPass({.calls = 10, .variety = true}), 8);
  const std::string bytes = EncodeTile(passes_, 0, passes_[0].fragments(), Lookup());
  auto tile = TileReader::Open(bytes);
  BlockBuilder whole, alone;
  for (uint32_t p = 0; p < 8; ++p) {
    whole.Begin(p, 0);
    alone.Begin(p, 0);
    ASSERT_TRUE(tile->AppendFragments(5, 1, p, whole).ok());
    ASSERT_TRUE(tile->AppendLeaf(5, 0, p, alone).ok());
    const v1::Block wanted = whole.Take();
    const v1::Block got = alone.Take();
    EXPECT_EQ(got.leaf_flags_size(), 1);
    EXPECT_EQ(got.narrow_size() + got.wide_size() + got.integer_extremes_size(),
              wanted.narrow_size() + wanted.wide_size() + wanted.integer_extremes_size());
    EXPECT_EQ(got.shapes(0).SerializeAsString(), wanted.shapes(0).SerializeAsString());
  }
  EXPECT_EQ(tile->AppendLeaf(5, 1, 0, alone).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(tile->AppendFragments(0, 1, 8, alone).code(), absl::StatusCode::kDataLoss);
}

TEST_F(TileTest, ALeafWithItsChecksumTakesFewBytes) {
  Fill(RepeatedPass({.calls = 12}), 48, 12, 1);
  const double bytes = static_cast<double>(EncodeTile(passes_, 0, 24, Lookup()).size());
  EXPECT_LT(bytes / (48 * 24), 25.5) << "24 are the numbers themselves";
}

TEST_F(TileTest, DamagedBytesAreRefusedAndNeverLeaveTheTile) {
  Fill(RepeatedPass({.calls = 6, .variety = true}), 4);
  const std::string bytes = EncodeTile(passes_, 0, passes_[0].fragments(), Lookup());
  EXPECT_EQ(TileReader::Open(bytes.substr(0, bytes.size() - 1)).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(TileReader::Open("\x02").status().code(), absl::StatusCode::kDataLoss);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (char flip : {'\x01', '\x80', '\xff'}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      auto tile = TileReader::Open(damaged);
      if (!tile.ok()) continue;
      BlockBuilder builder;
      builder.Begin(0, 0);
      tile->AppendFragments(0, tile->fragments(), 0, builder).IgnoreError();
    }
  }
}

TEST_F(TileTest, PassesOfOtherStructuresHaveAnotherSignature) {
  Fill(RepeatedPass({.calls = 6}), 2);
  EXPECT_EQ(passes_[0].signature(), passes_[1].signature());
  RepeatedPass longer({.calls = 7});
  blocks_ = {longer.Blocks(0, 0)};
  const uint64_t before = passes_[0].signature();
  Make();
  EXPECT_NE(passes_[0].signature(), before);
}

TEST_F(TileTest, FragmentsAreReadColumnByColumn) {
  Fill(RepeatedPass({.calls = 60, .variety = true, .varying_shapes = true}), 17);
  ExpectColumnsHoldThePasses();
}

TEST_F(TileTest, ColumnsThatAreCutOffAreRefused) {
  Fill(RepeatedPass({.calls = 3, .variety = true}), 5);
  const std::string bytes = EncodeTile(passes_, 0, passes_[0].fragments(), Lookup());
  TiledFragment fragment;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const char flip : {1, 7, -128}) {
      std::string broken = bytes;
      broken[at] = static_cast<char>(broken[at] ^ flip);
      auto tile = TileReader::Open(broken);
      if (!tile.ok()) continue;
      for (uint32_t i = 0; i < tile->fragments(); ++i) {
        if (!fragment.Read(*tile, i).ok()) continue;
        for (size_t leaf = 0; leaf < fragment.leaves(); ++leaf) {
          for (uint32_t shape : fragment.leaf(leaf).shape) ASSERT_LT(shape, tile->shapes().size());
        }
      }
    }
  }
}

}  // namespace
}  // namespace msprobe::server
