#include "server/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/synchronization/notification.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/log/group_sync.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

v1::Hello HelloOf(char id, const std::string& run) {
  v1::Hello hello;
  hello.set_protocol(1);
  hello.set_session(std::string(16, id));
  hello.set_run(run);
  return hello;
}

class StoreTest : public testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    store_.reset();
    StoreOptions options;
    options.directory = directory_ / "data";
    options.segment_bytes = segment_bytes_;
    options.segment_chunk_bytes = segment_chunk_bytes_;
    auto opened = Store::Open(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  void PutStep(const StepKey& key, v1::StepSummary::State state, uint64_t row_bytes = 0) {
    storage::StepRow row;
    row.set_state(state);
    row.set_row_bytes(row_bytes);
    ChangeSet changes;
    changes.PutMeta(key.Encode(), row);
    v1::Block block;
    block.set_step(key.step);
    changes.Put(Family::kRows, RowKey{key.run, key.rank, key.step, 0, key.epoch, 0}.Encode(), EncodeValue(block));
    ASSERT_TRUE(store_->database().Write(changes).ok());
  }
  // The run's number; its only session has ended.
  uint32_t AddEndedRun(char session_id, const std::string& run) {
    auto session = store_->catalogue().RegisterSession(HelloOf(session_id, run));
    session->set_state(storage::SessionRow::ENDED);
    ChangeSet changes;
    changes.PutMeta(SessionKey(session->session()), *session);
    EXPECT_TRUE(store_->database().Write(changes).ok());
    return session->run();
  }
  size_t Count(Family family, std::string_view prefix = "") {
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

  ScratchDirectory directory_;
  uint64_t segment_bytes_ = 64 << 20;
  size_t segment_chunk_bytes_ = 64 << 10;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreTest, SecondOpenIsRefusedAndNamesTheHolder) {
  StoreOptions options;
  options.directory = directory_ / "data";
  auto second = Store::Open(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another msprobe-server"));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(getpid())));
  store_.reset();
  EXPECT_TRUE(Store::Open(options).ok()) << "the lock goes with its holder";
}

TEST_F(StoreTest, KeepsItsIdentityAndWhatWasWritten) {
  const std::string id = store_->catalogue().server_id();
  EXPECT_EQ(id.size(), 32u);
  ASSERT_TRUE(store_->catalogue().RegisterSession(HelloOf('a', "r")).ok());
  Reopen();
  EXPECT_EQ(store_->catalogue().server_id(), id);
  EXPECT_EQ(store_->catalogue().FindRun("r")->number(), 1u);
}

TEST_F(StoreTest, OtherStorageFormatIsRefused) {
  storage::ServerRow row;
  row.set_format_version(99);
  ChangeSet changes;
  changes.PutMeta(ServerKey(), row);
  ASSERT_TRUE(store_->database().Write(changes).ok());
  store_.reset();
  StoreOptions options;
  options.directory = directory_ / "data";
  auto opened = Store::Open(options);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("format 99"));
}

TEST_F(StoreTest, ADirectoryOfALaterServerIsRefusedByItsFamilies) {
  store_.reset();
  const std::string path = directory_ / "data/store";
  {
    std::vector<std::string> names;
    ASSERT_TRUE(rocksdb::DB::ListColumnFamilies(rocksdb::DBOptions(), path, &names).ok());
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const std::string& name : names) families.emplace_back(name, rocksdb::ColumnFamilyOptions());
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(rocksdb::DBOptions(), path, families, &handles, &db).ok());
    handles.emplace_back();
    ASSERT_TRUE(db->CreateColumnFamily(rocksdb::ColumnFamilyOptions(), "mosaics", &handles.back()).ok());
    for (rocksdb::ColumnFamilyHandle* handle : handles) db->DestroyColumnFamilyHandle(handle);
    delete db;
  }
  StoreOptions options;
  options.directory = directory_ / "data";
  auto opened = Store::Open(options);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(opened.status().message()),
              HasSubstr("was written by a later msprobe-server: it has \"mosaics\""));
}

TEST_F(StoreTest, SessionsJoinRunsByNameAndGetEpochsInOrder) {
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('a', "r"))->epoch(), 0u);
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('b', "r"))->epoch(), 1u);
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('c', "s"))->epoch(), 0u);
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('a', "r"))->epoch(), 0u) << "known";
  Reopen();
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('d', "r"))->epoch(), 2u);
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('e', "t"))->run(), 3u);
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('a', "other")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_->catalogue().SessionOfEpoch(1, 1)->session(), std::string(16, 'b'));
}

TEST_F(StoreTest, NotFoundNamesWhatThereIs) {
  EXPECT_THAT(std::string(store_->catalogue().FindRun("x").status().message()), HasSubstr("there are none"));
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  rank.set_number(2);
  v1::Hello hello = HelloOf('a', "r");
  *hello.mutable_rank() = rank;
  ASSERT_TRUE(store_->catalogue().RegisterSession(hello).ok());
  EXPECT_THAT(std::string(store_->catalogue().FindRun("x").status().message()), HasSubstr("there are: r"));
  PutStep({1, 2, 7, 0}, v1::StepSummary::COMPLETE);
  EXPECT_THAT(std::string(store_->steps().Open("r", 8, rank).status().message()),
              HasSubstr("no step 8 of rank2; it has 7"));
  EXPECT_THAT(std::string(store_->steps().Open("r", 7, rank, 5).status().message()), HasSubstr("epoch 5"));
  rank.set_number(3);
  EXPECT_THAT(std::string(store_->steps().Open("r", 7, rank).status().message()), HasSubstr("no rank3; it has rank2"));
  rank.set_number(2);
  for (uint32_t step = 100; step < 130; ++step) PutStep({1, 2, step, 0}, v1::StepSummary::COMPLETE);
  const std::string many(store_->steps().Open("r", 8, rank).status().message());
  EXPECT_THAT(many, HasSubstr("it has 7, 100, 101"));
  EXPECT_THAT(many, testing::EndsWith("117, 118, ...")) << "not all thirty of them";
}

TEST_F(StoreTest, LatestEpochIsShownAndEarlierOnesStayReachable) {
  ASSERT_TRUE(store_->catalogue().RegisterSession(HelloOf('a', "r")).ok());
  ASSERT_TRUE(store_->catalogue().RegisterSession(HelloOf('b', "r")).ok());
  PutStep({1, 0, 3, 0}, v1::StepSummary::INCOMPLETE);
  PutStep({1, 0, 3, 1}, v1::StepSummary::COMPLETE);
  PutStep({1, 0, 2, 0}, v1::StepSummary::COMPLETE);
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  EXPECT_EQ((*store_->steps().Open("r", 3, rank))->epoch(), 1u);
  EXPECT_EQ((*store_->steps().Open("r", 3, rank, 0))->epoch(), 0u);
  EXPECT_EQ((*store_->steps().Open("r", 2, rank))->epoch(), 0u);
}

TEST_F(StoreTest, RankMoveTakesOneSessionOnly) {
  const uint32_t process = 0x80000000u | 4242;
  PutStep({1, process, 0, 0}, v1::StepSummary::COMPLETE);
  PutStep({1, process, 0, 1}, v1::StepSummary::COMPLETE);
  ChangeSet fault;
  fault.PutMeta(FaultKey({1, process, 0, 0}, 0), v1::Marker::Fault());
  ASSERT_TRUE(store_->database().Write(fault).ok());
  ChangeSet move;
  ASSERT_TRUE(store_->steps().AddRankMove(1, 0, process, 5, move).ok());
  ASSERT_TRUE(store_->database().Write(move).ok());
  EXPECT_EQ(Count(Family::kRows, RowKey::RankPrefix(1, 5)), 1u);
  EXPECT_EQ(Count(Family::kRows, RowKey::RankPrefix(1, process)), 1u);
  EXPECT_EQ(Count(Family::kMeta, MetaPrefix(MetaSpace::kFault, 1, 5)), 1u);
  auto steps = store_->steps().Of(1);
  ASSERT_EQ(steps->size(), 2u);
  EXPECT_EQ((*steps)[0].first, (StepKey{1, 5, 0, 0}));
  EXPECT_EQ((*steps)[1].first, (StepKey{1, process, 0, 1}));
}

TEST_F(StoreTest, StepDeletionTakesOneEpochOnly) {
  PutStep({1, 0, 3, 0}, v1::StepSummary::OPEN);
  PutStep({1, 0, 3, 1}, v1::StepSummary::OPEN);
  ChangeSet changes;
  ASSERT_TRUE(store_->steps().AddDeletion({1, 0, 3, 0}, changes).ok());
  ASSERT_TRUE(store_->database().Write(changes).ok());
  EXPECT_EQ(Count(Family::kRows), 1u);
  EXPECT_EQ(store_->steps().Of(1)->front().first.epoch, 1u);
}

class DeleteRunTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    for (uint32_t run : {AddEndedRun('a', "one"), AddEndedRun('b', "two")}) {
      PutStep({run, 0, 0, 0}, v1::StepSummary::COMPLETE, 100);
    }
    PutPayload(shared_, 10, {1, 2});
    PutPayload(own_, 30, {1});
  }
  void PutPayload(const std::string& hash, uint64_t size, std::vector<uint32_t> runs) {
    ChangeSet changes;
    storage::PayloadRow row;
    row.set_size(size);
    row.set_chunks(1);
    row.set_run(1);
    changes.PutMeta(PayloadKey(hash), row);
    changes.Put(Family::kPayloads, ChunkKey{hash, 1, 0, 0}.Encode(), std::string(size, 'x'));
    for (uint32_t run : runs) {
      storage::ReferenceRow reference;
      reference.set_size(size);
      changes.PutMeta(ReferenceKey(run, hash), reference);
      changes.Put(Family::kMeta, ReferrerKey(hash, run), "");
    }
    ASSERT_TRUE(store_->database().Write(changes).ok());
  }
  const std::string shared_ = std::string(16, 's'), own_ = std::string(16, 'o');
};

TEST_F(DeleteRunTest, FreesWhatNoOtherRunRefersTo) {
  auto deleted = store_->maintenance().DeleteRun("one");
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(deleted->row_bytes, 100u);
  EXPECT_EQ(deleted->payload_bytes, 30u);
  EXPECT_EQ(store_->catalogue().Runs()->size(), 1u);
  EXPECT_EQ(Count(Family::kRows), 1u);
  EXPECT_EQ(Count(Family::kPayloads), 1u);
  std::string content;
  EXPECT_TRUE(store_->payloads()
                  .Read(shared_,
                        [&](std::string_view chunk) {
                          content += chunk;
                          return absl::OkStatus();
                        })
                  .ok());
  EXPECT_EQ(content.size(), 10u) << "the other run still has it";
  EXPECT_TRUE(absl::IsNotFound(store_->payloads().Read(own_, [](std::string_view) { return absl::OkStatus(); })));

  deleted = store_->maintenance().DeleteRun("two");
  EXPECT_EQ(deleted->payload_bytes, 10u);
  EXPECT_EQ(Count(Family::kPayloads), 0u);
  EXPECT_EQ(Count(Family::kMeta), 1u) << "only the server row is left";
}

TEST_F(DeleteRunTest, IsRefusedWhileASessionIsOpen) {
  ASSERT_TRUE(store_->catalogue().RegisterSession(HelloOf('c', "one")).ok());
  EXPECT_EQ(store_->maintenance().DeleteRun("one").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_->maintenance().DeleteRun("three").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Count(Family::kRows), 2u);
}

// Payloads of several chunks, each run's own, in segments of 1 MiB.
class ChunkTest : public StoreTest {
 protected:
  static constexpr size_t kChunk = 128 << 10;

  void SetUp() override {
    segment_bytes_ = 1 << 20;
    StoreTest::SetUp();
    AddEndedRun('a', "one");
    AddEndedRun('b', "two");
  }
  static std::string Hash(uint32_t run, char n) { return std::string(15, static_cast<char>('0' + run)) + n; }
  static std::string Chunk(uint32_t run, char n, uint32_t index, size_t size = kChunk) {
    return std::string(size, static_cast<char>(run * 64 + static_cast<uint32_t>(n) + index));
  }
  // Three chunks of 128 KiB and one of 1000 bytes.
  absl::Status Put(uint32_t run, char n) {
    const std::string hash = Hash(run, n);
    for (uint32_t index = 0; index < 4; ++index) {
      ChangeSet changes;
      const std::string content = Chunk(run, n, index, index == 3 ? 1000 : kChunk);
      if (index == 0) changes.DeleteChunks(ChunkKey::Prefix(hash, run, 0));
      changes.PutChunk(ChunkKey{hash, run, 0, index}.Encode(), content);
      if (absl::Status status = store_->database().Write(changes); !status.ok()) return status;
    }
    ChangeSet changes;
    storage::PayloadRow row;
    row.set_size(3 * kChunk + 1000);
    row.set_chunks(4);
    row.set_chunk_bytes(kChunk);
    row.set_run(run);
    changes.PutMeta(PayloadKey(hash), row);
    storage::ReferenceRow reference;
    reference.set_size(row.size());
    changes.PutMeta(ReferenceKey(run, hash), reference);
    changes.Put(Family::kMeta, ReferrerKey(hash, run), "");
    return store_->database().Write(changes);
  }
  // "" where it is whole and right.
  std::string Wrong(uint32_t run, char n) {
    uint32_t index = 0;
    std::string wrong;
    absl::Status status = store_->payloads().Read(Hash(run, n), [&](std::string_view chunk) {
      if (chunk != Chunk(run, n, index, index == 3 ? 1000 : kChunk)) wrong = "other bytes";
      ++index;
      return absl::OkStatus();
    });
    return status.ok() ? wrong : status.ToString();
  }
  uint64_t SegmentBytes() {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / "data/segments")) {
      bytes += entry.file_size();
    }
    return bytes;
  }
};

TEST_F(ChunkTest, LongChunksAreInSegmentsAndShortOnesInRows) {
  ASSERT_TRUE(Put(1, 'a').ok());
  EXPECT_EQ(Count(Family::kExtents), 3u);
  EXPECT_EQ(Count(Family::kPayloads), 1u);
  EXPECT_EQ(SegmentBytes(), 3 * kChunk);
  EXPECT_GE(store_->database().FileBytes(Family::kPayloads), SegmentBytes()) << "what metrics show counts them";
  EXPECT_EQ(Wrong(1, 'a'), "");
  uint64_t from = 0;
  ASSERT_TRUE(store_->payloads()
                  .ReadRange(Hash(1, 'a'), 2 * kChunk + 5, 10,
                             [&](uint64_t offset, std::string_view chunk) {
                               from = offset;
                               EXPECT_EQ(chunk, Chunk(1, 'a', 2));
                               return absl::OkStatus();
                             })
                  .ok());
  EXPECT_EQ(from, 2 * kChunk);
  Reopen();
  EXPECT_EQ(Wrong(1, 'a'), "");
}

TEST_F(ChunkTest, AnUploadThatBeginsAgainLeavesNothingOfTheFirst) {
  ASSERT_TRUE(Put(1, 'a').ok());
  ChangeSet changes;
  const std::string content = Chunk(1, 'b', 0, 500);
  changes.DeleteChunks(ChunkKey::Prefix(Hash(1, 'a'), 1, 0));
  changes.PutChunk(ChunkKey{Hash(1, 'a'), 1, 0, 0}.Encode(), content);
  ASSERT_TRUE(store_->database().Write(changes).ok());
  EXPECT_EQ(Count(Family::kExtents), 0u);
  EXPECT_EQ(Count(Family::kPayloads), 1u);
}

TEST_F(ChunkTest, DeletedRunsGiveTheirSegmentsBackAndOthersAreMovedTogether) {
  const std::string names = "abcdefghijkl";
  for (char n : names) {
    for (int kind = 0; kind < 3; ++kind) ASSERT_TRUE(Put(1, static_cast<char>(n + 20 * kind)).ok());
    ASSERT_TRUE(Put(2, n).ok());
  }
  const uint64_t before = SegmentBytes();
  ASSERT_TRUE(store_->maintenance().DeleteRun("one").ok());
  EXPECT_EQ(SegmentBytes(), before);
  ASSERT_TRUE(store_->maintenance().CollectSegments().ok());
  EXPECT_LE(SegmentBytes(), before / 4 + (2 << 20)) << "a quarter is alive";
  EXPECT_GE(SegmentBytes(), before / 4);
  for (char n : names) EXPECT_EQ(Wrong(2, n), "") << n;
  Reopen();
  for (char n : names) EXPECT_EQ(Wrong(2, n), "") << n;
  ASSERT_TRUE(store_->maintenance().DeleteRun("two").ok());
  ASSERT_TRUE(store_->maintenance().CollectSegments().ok());
  EXPECT_EQ(SegmentBytes(), 0u);
}

TEST_F(ChunkTest, WhatNoRowRefersToIsCollectedAndWhatIsBeingWrittenIsNot) {
  ASSERT_TRUE(Put(1, 'a').ok());
  store_.reset();
  std::ofstream(directory_ / "data/segments/0000000900.segment") << std::string(8192, 'x');
  std::ofstream(directory_ / "data/segments/0000000901.open") << std::string(8192, 'x');
  Reopen();
  ASSERT_TRUE(store_->maintenance().CollectSegments().ok());
  EXPECT_EQ(SegmentBytes(), 3 * kChunk);

  std::atomic<bool> stop = false;
  std::thread collector([&] {
    while (!stop) EXPECT_TRUE(store_->maintenance().CollectSegments().ok());
  });
  std::vector<std::thread> writers;
  for (uint32_t run : {1u, 2u}) {
    writers.emplace_back([&, run] {
      for (int again = 0; again < 30; ++again) {  // each time, what was there is garbage
        for (char n : {'a', 'b', 'c'}) {
          EXPECT_TRUE(Put(run, n).ok());
          EXPECT_EQ(Wrong(run, n), "");
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  stop = true;
  collector.join();
  for (uint32_t run : {1u, 2u}) {
    for (char n : {'a', 'b', 'c'}) EXPECT_EQ(Wrong(run, n), "");
  }
  EXPECT_LE(SegmentBytes(), 12u << 20) << "of 68 MB that were written";
}

TEST_F(ChunkTest, WhatIsDeletedWhileItsBytesMoveStaysDeleted) {
  for (int again = 0; again < 5; ++again) {
    const std::string names = "abcdefghijklmnopqrstuvwx";
    for (char n : names) ASSERT_TRUE(Put(1, n).ok());
    const auto forget = [&](char n) {
      ChangeSet changes;
      changes.DeleteChunks(ChunkKey::Prefix(Hash(1, n), 1, 0));
      EXPECT_TRUE(store_->database().Write(changes).ok());
    };
    for (size_t i = 0; i < names.size(); ++i) {
      if (i % 4 != 0) forget(names[i]);
    }
    std::thread collector([&] { EXPECT_TRUE(store_->maintenance().CollectSegments().ok()); });
    for (size_t i = 0; i < names.size(); i += 4) {
      // Spreads them over the collection, which reads, too
      const std::string key = ChunkKey{Hash(1, names[i]), 1, 0, 0}.Encode();
      for (int turn = 0; turn < 200; ++turn) EXPECT_TRUE(store_->database().Get(Family::kExtents, key)->has_value());
      forget(names[i]);
    }
    collector.join();
    EXPECT_EQ(Count(Family::kExtents), 0u);
    EXPECT_EQ(Count(Family::kPayloads), 0u);
  }
}

TEST_F(ChunkTest, ReadingGoesOnWhileItsBytesMove) {
  segment_bytes_ = 64 << 10;
  segment_chunk_bytes_ = 500;  // short chunks: readers are between row and bytes most of the time
  Reopen();
  const auto put = [&](char n) {
    const std::string hash = Hash(2, n), content(4000, n);
    storage::PayloadRow row;
    row.set_size(content.size());
    row.set_chunks(1);
    row.set_run(2);
    ChangeSet changes;
    changes.DeleteChunks(ChunkKey::Prefix(hash, 2, 0));
    changes.PutChunk(ChunkKey{hash, 2, 0, 0}.Encode(), content);
    changes.PutMeta(PayloadKey(hash), row);
    EXPECT_TRUE(store_->database().Write(changes).ok());
  };
  put('!');
  std::atomic<bool> stop = false;
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      while (!stop) {
        absl::Status status = store_->payloads().Read(Hash(2, '!'), [](std::string_view chunk) {
          EXPECT_EQ(chunk, std::string(4000, '!'));
          return absl::OkStatus();
        });
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  for (int again = 0; again < 25; ++again) {
    for (char n = 'a'; n < 'a' + 17; ++n) put(n);  // fills the segment, and is garbage the next time
    ASSERT_TRUE(store_->maintenance().CollectSegments().ok());
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(ChunkTest, ADamagedSegmentIsDataLossAndItsFileStays) {
  ASSERT_TRUE(Put(1, 'a').ok());
  ASSERT_TRUE(Put(2, 'b').ok());
  Reopen();
  {
    std::fstream file(directory_ / "data/segments/0000000001.segment", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(3 * kChunk + 5).put('!');
  }
  ASSERT_TRUE(store_->maintenance().DeleteRun("one").ok());
  ASSERT_TRUE(store_->maintenance().CollectSegments().ok());
  EXPECT_THAT(Wrong(2, 'b'), HasSubstr("DATA_LOSS")) << "and not NotFound: it was there";
  std::filesystem::remove(directory_ / "data/segments/0000000001.segment");
  Reopen();
  EXPECT_THAT(Wrong(2, 'b'), HasSubstr("DATA_LOSS")) << "a missing file, too";
}

TEST_F(ChunkTest, ACheckpointHasItsBytesWhateverIsDeletedLater) {
  for (char n : std::string("abcdef")) ASSERT_TRUE(Put(1, n).ok());
  ASSERT_TRUE(store_->maintenance().Checkpoint(directory_ / "copy").ok());
  ASSERT_TRUE(Put(1, 'z').ok());
  ASSERT_TRUE(store_->maintenance().DeleteRun("one").ok());
  ASSERT_TRUE(store_->maintenance().ReclaimSpace().ok());
  StoreOptions options;
  options.directory = directory_ / "copy";
  store_.reset();
  auto copy = Store::Open(options);
  ASSERT_TRUE(copy.ok()) << copy.status();
  store_ = *std::move(copy);
  for (char n : std::string("abcdef")) EXPECT_EQ(Wrong(1, n), "") << n;
  EXPECT_THAT(Wrong(1, 'z'), HasSubstr("NOT_FOUND"));
}

TEST(GroupSync, OneSyncServesAllWhoCameDuringTheLast) {
  absl::Mutex mu;
  int syncs = 0, done = 0;
  bool release = false;
  {
    GroupSync* group = nullptr;
    GroupSync sync(v1::DURABILITY_SYNC, absl::Seconds(1), [&] {
      absl::MutexLock lock(&mu);
      ++syncs;
      mu.Await(absl::Condition(&release));
      return absl::OkStatus();
    });
    group = &sync;
    auto count = [&](absl::Status) {
      absl::MutexLock lock(&mu);
      ++done;
    };
    group->Await(count);
    {
      absl::MutexLock lock(&mu);
      auto began = [&] { return syncs == 1; };
      mu.Await(absl::Condition(&began));
    }
    for (int i = 0; i < 100; ++i) group->Await(count);
    absl::MutexLock lock(&mu);
    EXPECT_EQ(done, 0) << "nothing is durable before its sync";
    release = true;
    auto all = [&] { return done == 101; };
    mu.Await(absl::Condition(&all));
    EXPECT_EQ(syncs, 2);
  }
}

TEST(GroupSync, FailureReachesEveryWaiter) {
  absl::Status seen;
  {
    GroupSync(v1::DURABILITY_SYNC, absl::Seconds(1), [] {
      return absl::DataLossError("disk");
    }).Await([&](absl::Status s) { seen = s; });
  }
  EXPECT_EQ(seen.code(), absl::StatusCode::kDataLoss);
}

TEST(GroupSync, OsNeverSyncsForAWaiter) {
  std::atomic<int> syncs = 0;
  absl::Notification done;
  GroupSync sync(v1::DURABILITY_OS, absl::Seconds(1), [&] {
    ++syncs;
    return absl::OkStatus();
  });
  sync.Await([&](absl::Status) { done.Notify(); });
  done.WaitForNotification();
  EXPECT_EQ(syncs, 0);
}

}  // namespace
}  // namespace msprobe::server
