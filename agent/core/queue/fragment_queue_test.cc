#include "agent/core/queue/fragment_queue.h"

#include <array>
#include <thread>

#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

Fragment Numbered(uint32_t thread, uint32_t count) {
  Fragment fragment;
  fragment.thread = thread;
  fragment.count = count;
  return fragment;
}

v1::Marker StepEnd(uint32_t step) {
  v1::Marker marker;
  marker.mutable_step_end()->set_step(step);
  return marker;
}

v1::Marker Read(const ChunkReader& reader) {
  v1::Marker marker;
  EXPECT_TRUE(marker.ParseFromArray(reader.marker().data(), static_cast<int>(reader.marker().size())));
  return marker;
}

TEST(FragmentQueueTest, KeepsEveryFieldOfALeaf) {
  Doorbell bell;
  FragmentQueue queue(&bell);
  const std::array<int64_t, 3> shape = {1, 0, 5};
  Leaf leaf;
  leaf.shape = shape;
  leaf.has_statistics = leaf.is_integer = leaf.is_wide = leaf.reused = true;
  leaf.max = 1, leaf.min = 2, leaf.mean = 3, leaf.norm = 4, leaf.variance = 5;
  leaf.integer_max = 6, leaf.integer_min = -7;
  leaf.zero_count = 8, leaf.nan_count = 9, leaf.positive_inf_count = 10, leaf.negative_inf_count = 11;
  leaf.has_finite = false;
  leaf.finite_max = 12, leaf.finite_min = 13, leaf.finite_mean = 14, leaf.finite_norm = 15;
  leaf.crc32 = 16;
  leaf.xor64 = uint64_t{1} << 63;
  leaf.edge = {.kind = EdgeKind::kView, .leaf = 65535, .distance = -17};
  Fragment fragment;
  fragment.step = 1, fragment.token = 2, fragment.structure = 3, fragment.count = 4;
  fragment.ordinal = uint64_t{1} << 40;
  fragment.flags = 6, fragment.stack = 7, fragment.parent = 8, fragment.thread = 9;
  fragment.leaves = {&leaf, 1};
  queue.Append(fragment);
  std::vector<Chunk> chunks = queue.Take();
  ASSERT_EQ(chunks.size(), 1);
  EXPECT_EQ(chunks[0].charged, EncodedSize(fragment));
  ChunkReader reader(&chunks[0]);
  ASSERT_TRUE(reader.Next());
  const Fragment& read = reader.fragment();
  EXPECT_EQ(read.step, 1);
  EXPECT_EQ(read.token, 2);
  EXPECT_EQ(read.structure, 3);
  EXPECT_EQ(read.count, 4);
  EXPECT_EQ(read.ordinal, uint64_t{1} << 40);
  EXPECT_EQ(read.flags, 6);
  EXPECT_EQ(read.stack, 7);
  EXPECT_EQ(read.parent, 8);
  EXPECT_EQ(read.thread, 9);
  ASSERT_EQ(read.leaves.size(), 1);
  const Leaf& got = read.leaves[0];
  EXPECT_EQ(std::vector<int64_t>(got.shape.begin(), got.shape.end()), (std::vector<int64_t>{1, 0, 5}));
  EXPECT_TRUE(got.has_statistics && got.is_integer && got.is_wide && got.reused);
  EXPECT_FALSE(got.has_finite);
  EXPECT_EQ(got.edge.kind, EdgeKind::kView);
  EXPECT_EQ(got.edge.leaf, 65535);
  EXPECT_EQ(got.edge.distance, -17);
  EXPECT_EQ(got.max + got.min * 10 + got.mean * 100 + got.norm * 1000 + got.variance * 10000, 54321);
  EXPECT_EQ(got.integer_max, 6);
  EXPECT_EQ(got.integer_min, -7);
  EXPECT_EQ(got.zero_count, 8);
  EXPECT_EQ(got.nan_count, 9);
  EXPECT_EQ(got.positive_inf_count, 10);
  EXPECT_EQ(got.negative_inf_count, 11);
  EXPECT_EQ(got.finite_max, 12);
  EXPECT_EQ(got.finite_min, 13);
  EXPECT_EQ(got.finite_mean, 14);
  EXPECT_EQ(got.finite_norm, 15);
  EXPECT_EQ(got.crc32, 16);
  EXPECT_EQ(got.xor64, uint64_t{1} << 63);
  EXPECT_EQ(got.payload, nullptr);
  EXPECT_FALSE(reader.Next());
}

TEST(FragmentQueueTest, EveryThreadsOrderIsKeptAndMarkersFollowWhatReturnedBefore) {
  Doorbell bell;
  FragmentQueue queue(&bell);
  constexpr uint32_t kThreads = 4, kEach = 5000;
  std::atomic<bool> done{false};
  std::array<uint32_t, kThreads> next{};
  bool marked = false;
  const auto drain = [&] {
    for (Chunk& chunk : queue.Take()) {
      ChunkReader reader(&chunk);
      while (reader.Next()) {
        if (reader.is_marker()) {
          for (uint32_t count : next) EXPECT_EQ(count, kEach);
          marked = true;
        } else {
          EXPECT_EQ(reader.fragment().count, next[reader.fragment().thread]++);
        }
      }
      queue.Recycle(std::move(chunk));
    }
  };
  std::thread consumer([&] {
    while (!done) drain();
    drain();
  });
  std::vector<std::thread> producers;
  for (uint32_t t = 0; t < kThreads; ++t) {
    producers.emplace_back([&queue, t] {
      for (uint32_t i = 0; i < kEach; ++i) queue.Append(Numbered(t, i));
    });
  }
  for (std::thread& producer : producers) producer.join();
  queue.AppendMarker(StepEnd(0));
  done = true;
  consumer.join();
  EXPECT_TRUE(marked);
}

TEST(FragmentQueueTest, AFragmentLargerThanAChunkFits) {
  Doorbell bell;
  FragmentQueue queue(&bell);
  queue.Append(Numbered(0, 1));
  const std::vector<int64_t> integers(1 << 17, 42);
  Fragment fragment = Numbered(0, 2);
  fragment.integers = integers;
  queue.Append(fragment);
  queue.Append(Numbered(0, 3));
  uint32_t expected = 1;
  for (Chunk& chunk : queue.Take()) {
    ChunkReader reader(&chunk);
    while (reader.Next()) {
      EXPECT_EQ(reader.fragment().count, expected++);
      if (expected == 3) {
        EXPECT_EQ(reader.fragment().integers.back(), 42);
      }
    }
  }
  EXPECT_EQ(expected, 4);
}

TEST(FragmentQueueTest, LossesStandBeforeWhatComesAfterThem) {
  Doorbell bell;
  FragmentQueue queue(&bell);
  queue.Append(Numbered(0, 0));
  const Loss fragment_lost{.step = 3, .fragments = 1, .payloads = 2, .reason = v1::Marker::Gap::DROPPED};
  queue.AddLoss(fragment_lost);
  queue.AddLoss(fragment_lost);
  queue.AddLoss({.step = {}, .fragments = 0, .payloads = 1, .reason = v1::Marker::Gap::STALL_EXPIRED});
  EXPECT_EQ(queue.Flush(), 1);
  queue.AppendMarker(StepEnd(5));
  std::vector<Chunk> chunks = queue.Take();
  ChunkReader reader(&chunks[0]);
  ASSERT_TRUE(reader.Next() && !reader.is_marker());
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(Read(reader).gap().step(), 3);
  EXPECT_EQ(Read(reader).gap().fragments(), 2);
  EXPECT_EQ(Read(reader).gap().payloads(), 4);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(Read(reader).gap().step(), 5);
  EXPECT_EQ(Read(reader).gap().reason(), v1::Marker::Gap::STALL_EXPIRED);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(Read(reader).step_end().step(), 5);
  EXPECT_FALSE(reader.Next());
}

TEST(FragmentQueueTest, AStepsEndIsTakenAtOnceWhatComesBeforeItMayWait) {
  Doorbell bell;
  FragmentQueue queue(&bell);
  EXPECT_TRUE(queue.fill().empty);
  queue.Append(Numbered(0, 0));
  EXPECT_FALSE(queue.fill().empty);
  EXPECT_FALSE(queue.fill().urgent);
  queue.AppendMarker(StepEnd(0));
  EXPECT_TRUE(queue.fill().urgent);
  queue.Take();
  queue.Append(Numbered(0, 1));
  EXPECT_FALSE(queue.fill().urgent);
}

TEST(FragmentQueueTest, ChunksAreUsedAgain) {
  Doorbell bell;
  FragmentQueue queue(&bell);
  queue.Append(Numbered(0, 0));
  std::vector<Chunk> chunks = queue.Take();
  const char* const bytes = chunks[0].bytes();
  queue.Recycle(std::move(chunks[0]));
  queue.Append(Numbered(0, 1));
  chunks = queue.Take();
  EXPECT_EQ(chunks[0].bytes(), bytes);
  EXPECT_EQ(chunks[0].entries, 1);
}

}  // namespace
}  // namespace msprobe::core
