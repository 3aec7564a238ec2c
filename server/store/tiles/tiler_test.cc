#include "server/store/tiles/tiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "server/format/storage/repeated_pass.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/stored_blocks.h"

namespace msprobe::server {
namespace {

v1::Rank RankOf(uint32_t number) {
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  rank.set_number(number);
  return rank;
}

class TilerTest : public testing::Test {
 protected:
  void SetUp() override {
    Reopen();
    for (char session : {'a', 'b'}) {
      v1::Hello hello;
      hello.set_session(std::string(16, session));
      hello.set_run("run");
      hello.mutable_settings()->set_task("statistics");
      ASSERT_TRUE(store_->catalogue().RegisterSession(hello).ok());
    }
  }
  void Reopen() {
    store_.reset();
    StoreOptions options;
    options.directory = directory_ / "data";
    auto opened = Store::Open(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }

  // A finished step as a session leaves it. Blocks are numbered from `first_block`.
  void PutStep(const RepeatedPass& pass, const StepKey& key, uint32_t tokens = 1, uint32_t calls_a_block = 1'000'000,
               uint32_t first_block = 0) {
    ChangeSet changes;
    for (const v1::Definition& definition : pass.definitions()) {
      changes.Put(Family::kMeta, DefinitionKey(key.run, definition.id()),
                  definition.has_structure() ? EncodeDefinition(DefinitionKind::kStructure, definition.structure())
                                             : EncodeDefinition(DefinitionKind::kStack, definition.stack()));
    }
    for (uint32_t token = 0; token < tokens; ++token) {
      for (const v1::Block& block : pass.Blocks(key.step, token, calls_a_block)) {
        changes.Put(Family::kRows, RowKey{key.run, key.rank, key.step, token, key.epoch, first_block++}.Encode(),
                    EncodeValue(block));
      }
    }
    storage::StepRow row;
    row.set_state(v1::StepSummary::COMPLETE);
    changes.PutMeta(key.Encode(), row);
    changes.Put(Family::kMeta, key.Encode(MetaSpace::kUntiled), "");
    ASSERT_TRUE(store_->database().Write(changes).ok());
  }

  void End(char session) {
    auto row = store_->database().Find<storage::SessionRow>(SessionKey(std::string(16, session)));
    (*row)->set_state(storage::SessionRow::ENDED);
    ChangeSet changes;
    changes.PutMeta(SessionKey(std::string(16, session)), **row);
    ASSERT_TRUE(store_->database().Write(changes).ok());
  }

  // Every record with its stack, to the bit.
  std::vector<std::string> Read(uint32_t step, std::optional<uint32_t> epoch = std::nullopt, uint32_t rank = 0) {
    auto reader = store_->steps().Open("run", step, RankOf(rank), epoch);
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::vector<std::string> records;
    if (!reader.ok()) return records;
    absl::Status status = (*reader)->ForEachRecord([&](const v1::Record& record, uint64_t stack) {
      records.push_back(record.SerializeAsString() + std::to_string(stack));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return records;
  }

  size_t Count(Family family, const std::string& prefix = "") const {
    size_t count = 0;
    EXPECT_TRUE(store_->database()
                    .ForEach(family, prefix,
                             [&](std::string_view, std::string_view) {
                               ++count;
                               return absl::OkStatus();
                             })
                    .ok());
    return count;
  }
  size_t Waiting() const { return Count(Family::kMeta, MetaPrefix(MetaSpace::kUntiled)); }
  void Run(TilerOptions options = {}) {
    absl::Status status = Tiler(store_.get(), options).RunOnce();
    ASSERT_TRUE(status.ok()) << status;
  }
  void DeleteStep(const StepKey& key) {
    absl::ReaderMutexLock tiling(&store_->steps().tiling_mutex());
    ChangeSet changes;
    ASSERT_TRUE(store_->steps().AddDeletion(key, changes).ok());
    ASSERT_TRUE(store_->database().Write(changes).ok());
  }

  ScratchDirectory directory_;
  std::unique_ptr<Store> store_;
};

TEST_F(TilerTest, EveryRecordOfEveryKindReadsAsBefore) {
  const RepeatedPass pass({.calls = 60, .variety = true, .varying_shapes = true});
  std::vector<std::vector<std::string>> before;
  for (uint32_t step = 0; step < 100; ++step) PutStep(pass, {1, 0, step, 0}, 1, 1 + step % 30);
  for (uint32_t step = 0; step < 100; ++step) before.push_back(Read(step));
  ASSERT_EQ(before[0].size(), 60u);
  Run();
  EXPECT_EQ(Waiting(), 4u) << "two sets of 48 are full";
  for (uint32_t step = 0; step < 96; ++step) {
    EXPECT_EQ(Count(Family::kRows, RowKey::StepPrefix(1, 0, step)), 0u) << step;
  }
  Reopen();
  for (uint32_t step = 0; step < 100; ++step) EXPECT_EQ(Read(step), before[step]) << step;
}

TEST_F(TilerTest, PassesOfOneStepAndOfManyCallsGoEachWithTheirLike) {
  const RepeatedPass small({.calls = 7, .variety = true}), large({.calls = 31, .seed = 5});
  std::map<uint32_t, std::vector<std::string>> before;
  for (uint32_t step = 0; step < 20; ++step) PutStep(step % 2 == 0 ? small : large, {1, 0, step, 0}, 6, 4);
  for (uint32_t step = 0; step < 20; ++step) before[step] = Read(step);
  Run();
  EXPECT_EQ(Count(Family::kMeta, MetaPrefix(MetaSpace::kTileSet)), 2u);
  EXPECT_GT(Count(Family::kRows), 0u);
  for (uint32_t step = 0; step < 20; ++step) EXPECT_EQ(Read(step), before[step]) << step;
  End('a');
  Run();
  EXPECT_EQ(Count(Family::kRows), 0u) << "12 passes of each are left, and no more will come";
  for (uint32_t step = 0; step < 20; ++step) EXPECT_EQ(Read(step), before[step]) << step;
}

TEST_F(TilerTest, TooFewPassesStayRowsAndWaitNoLongerWhenTheSessionHasEnded) {
  const RepeatedPass pass({.calls = 4});
  for (uint32_t step = 0; step < 3; ++step) PutStep(pass, {1, 0, step, 0});
  Run();
  EXPECT_EQ(Waiting(), 3u);
  End('a');
  Run();
  EXPECT_EQ(Waiting(), 0u);
  EXPECT_EQ(Count(Family::kRows), 3u);
}

TEST_F(TilerTest, SetsOfManyBytesAreFullEarlier) {
  const RepeatedPass pass({.calls = 100});
  for (uint32_t step = 0; step < 12; ++step) PutStep(pass, {1, 0, step, 0});
  Run({.set_bytes = 40'000});
  EXPECT_GT(Count(Family::kMeta, MetaPrefix(MetaSpace::kTileSet)), 1u);
  EXPECT_EQ(Read(0).size(), 100u);
}

TEST_F(TilerTest, SessionsStayApart) {
  const RepeatedPass first({.calls = 5, .seed = 1}), second({.calls = 5, .seed = 2});
  for (uint32_t step = 0; step < 48; ++step) {
    PutStep(first, {1, 0, step, 0});
    PutStep(second, {1, 0, step, 1});
  }
  const auto earlier = Read(7, 0), later = Read(7);
  ASSERT_NE(earlier, later);
  Run();
  EXPECT_EQ(Count(Family::kRows), 0u);
  EXPECT_EQ(Read(7, 0), earlier);
  EXPECT_EQ(Read(7), later);
  DeleteStep({1, 0, 7, 1});
  EXPECT_EQ(Read(7), earlier) << "the earlier session is shown again";
}

TEST_F(TilerTest, WhatComesAfterItsTilesIsRead) {
  const RepeatedPass pass({.calls = 5}), more({.calls = 3, .seed = 9});
  for (uint32_t step = 0; step < 48; ++step) PutStep(pass, {1, 0, step, 0}, 1, 2);
  Run();
  ASSERT_EQ(Count(Family::kRows), 0u);
  // The session came back and went on with the step, in blocks 3 and 4.
  PutStep(more, {1, 0, 7, 0}, 1, 2, 3);
  auto blocks = store_->steps().ReadBlocks({1, 0, 7, 0});
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  std::vector<int> sizes;
  for (const auto& block : *blocks) sizes.push_back(block->structure_size());
  EXPECT_THAT(sizes, testing::ElementsAre(4, 4, 2, 4, 2));
  End('a');
  Run({.fewest_passes = 1});
  EXPECT_EQ(Count(Family::kRows), 0u);
  EXPECT_EQ(store_->steps().ReadBlocks({1, 0, 7, 0})->size(), 5u) << "its passes are in two sets";
}

TEST_F(TilerTest, RankMovesTakeTilesAlong) {
  const RepeatedPass pass({.calls = 5});
  const uint32_t process = 0x80000000u | 4242;
  for (uint32_t step = 0; step < 50; ++step) PutStep(pass, {1, process, step, 0});
  Run();
  ASSERT_EQ(Count(Family::kRows), 2u);
  {
    absl::ReaderMutexLock tiling(&store_->steps().tiling_mutex());
    ChangeSet move;
    ASSERT_TRUE(store_->steps().AddRankMove(1, 0, process, 3, move).ok());
    ASSERT_TRUE(store_->database().Write(move).ok());
  }
  for (uint32_t step : {0, 47, 49}) EXPECT_EQ(Read(step, std::nullopt, 3).size(), 5u) << step;
  EXPECT_EQ(Waiting(), 2u);
  for (uint32_t step = 50; step < 96; ++step) PutStep(pass, {1, 3, step, 0});
  Run();
  EXPECT_EQ(Count(Family::kRows), 0u);
  EXPECT_EQ(Count(Family::kMeta, MetaPrefix(MetaSpace::kTileSet, 1, 3)), 2u);
}

TEST_F(TilerTest, DeletedStepsTakeTheirTilesWithTheLastOfASet) {
  const RepeatedPass pass({.calls = 50});
  for (uint32_t step = 0; step < 48; ++step) PutStep(pass, {1, 0, step, 0});
  Run();
  const size_t tiles = Count(Family::kTiles);
  ASSERT_GT(tiles, 1u);
  for (uint32_t step = 1; step < 48; ++step) DeleteStep({1, 0, step, 0});
  EXPECT_EQ(Count(Family::kTiles), tiles);
  EXPECT_EQ(Read(0).size(), 50u);
  EXPECT_EQ(store_->steps().Open("run", 1, RankOf(0)).status().code(), absl::StatusCode::kNotFound);
  DeleteStep({1, 0, 0, 0});
  EXPECT_EQ(Count(Family::kTiles), 0u);
  for (MetaSpace space : {MetaSpace::kTiled, MetaSpace::kTileSet, MetaSpace::kUntiled}) {
    EXPECT_EQ(Count(Family::kMeta, MetaPrefix(space)), 0u);
  }
}

TEST_F(TilerTest, DeletedRunsLeaveNothing) {
  const RepeatedPass pass({.calls = 5});
  for (uint32_t step = 0; step < 50; ++step) PutStep(pass, {1, 0, step, 0});
  Run();
  End('a');
  End('b');
  ASSERT_TRUE(store_->maintenance().DeleteRun("run").ok());
  EXPECT_EQ(Count(Family::kTiles) + Count(Family::kRows), 0u);
  EXPECT_EQ(Count(Family::kMeta), 1u) << "only the server row is left";
}

TEST_F(TilerTest, BlocksThisServerDoesNotWhollyKnowStayAsTheyCame) {
  const RepeatedPass pass({.calls = 5});
  for (uint32_t step = 0; step < 48; ++step) PutStep(pass, {1, 0, step, 0});
  v1::Block block = pass.Blocks(7, 0)[0];
  block.GetReflection()->MutableUnknownFields(&block)->AddVarint(999, 1);
  ChangeSet changes;
  changes.Put(Family::kRows, RowKey{1, 0, 7, 0, 0, 0}.Encode(), EncodeValue(block));
  ASSERT_TRUE(store_->database().Write(changes).ok());
  End('a');
  Run();
  EXPECT_EQ(Count(Family::kRows), 1u);
  EXPECT_EQ((*store_->steps().ReadBlocks({1, 0, 7, 0}))[0]->SerializeAsString(), block.SerializeAsString());
}

TEST_F(TilerTest, ALeafTakesLessThanFortyBytesOnDisk) {
  const RepeatedPass pass({.calls = 500});
  for (uint32_t step = 0; step < 96; ++step) PutStep(pass, {1, 0, step, 0});
  Run();
  ASSERT_TRUE(store_->database().Compact().ok());
  const uint64_t bytes = store_->database().FileBytes(Family::kTiles) + store_->database().FileBytes(Family::kRows) +
                         store_->database().FileBytes(Family::kMeta);
  EXPECT_LT(static_cast<double>(bytes) / (96.0 * 1000), 40.0);
  EXPECT_GT(static_cast<double>(bytes) / (96.0 * 1000), 20.0) << "what is written is found in the files";
}

// The tiler at work beside a session that writes, one that deletes, and a reader that must find whole steps only.
TEST_F(TilerTest, ReadersFindWholeStepsWhileTilesAreMade) {
  const RepeatedPass pass({.calls = 20, .variety = true});
  Tiler tiler(store_.get(), {.period = absl::ZeroDuration(), .duty = 1, .niceness = 0, .passes = 8});
  tiler.Start();
  std::atomic<uint32_t> written = 0;
  std::atomic<bool> done = false;
  std::thread reader([&] {
    for (uint32_t step = 0; !done; ++step) {
      const uint32_t count = written;
      if (count < 2) continue;
      // Steps with an odd number are deleted some time.
      const uint32_t chosen = step % count & ~1u;
      EXPECT_EQ(Read(chosen).size(), 20u) << chosen;
    }
  });
  // Goes on until the tiler, which has the lowest priority, has had its share.
  uint32_t steps = 0;
  for (uint32_t step = 0; step < 400 || (tiler.counters().sets <= 5 && step < 50'000); steps = ++step) {
    PutStep(pass, {1, 0, step, 0}, 1, 6);
    written = step + 1;
    if (step % 10 == 9) DeleteStep({1, 0, step - 4, 0});
  }
  done = true;
  reader.join();
  tiler.Stop();
  EXPECT_GT(tiler.counters().sets, 5u);
  EXPECT_EQ(tiler.counters().failures, 0u);
  Run({.passes = 8});
  for (uint32_t step = 5; step + 5 <= steps; step += 10) {
    EXPECT_EQ(store_->steps().Open("run", step, RankOf(0)).status().code(), absl::StatusCode::kNotFound) << step;
    EXPECT_EQ(Count(Family::kRows, RowKey::StepPrefix(1, 0, step)), 0u) << step;
  }
}

}  // namespace
}  // namespace msprobe::server
