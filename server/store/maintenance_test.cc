#include "server/store/maintenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/store/store_fixture.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

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
  void PutPayload(const std::string& hash, uint64_t size, const std::vector<uint32_t>& runs) {
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

}  // namespace
}  // namespace msprobe::server
