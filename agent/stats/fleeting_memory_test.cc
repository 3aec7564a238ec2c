#include "agent/stats/fleeting_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "agent/stats/statistics.h"

namespace msprobe::stats {
namespace {

bool GoesOn(std::span<const std::byte>) { return true; }

std::span<std::byte> Room() {
  static std::vector<std::byte> room(FleetingMemory::kRoom);
  return room;
}

// Pages of floats that are neither all alike nor exact sums of each other.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint32_t state = 1;
    for (size_t i = 0; i < bytes / sizeof(float); ++i) {
      state = state * 1664525 + 1013904223;
      floats()[i] = static_cast<float>(static_cast<int32_t>(state)) * 1e-9f;
    }
  }
  ~Pages() { munmap(data_, kept_); }

  float* floats() { return static_cast<float*>(data_); }
  std::span<const std::byte> memory() const { return {static_cast<const std::byte*>(data_), bytes_}; }
  // All but the first `kept` bytes, which is at least a page.
  void FreeAfter(size_t kept) {
    kept_ = kept;
    munmap(static_cast<char*>(data_) + kept, bytes_ - kept);
  }

 private:
  const size_t bytes_;
  size_t kept_ = bytes_;
  void* data_;
};

Statistics StatisticsOf(Pages& pages, FleetingMemory* fleeting, uint32_t* crc32) {
  const auto count = static_cast<int64_t>(pages.memory().size() / sizeof(float));
  const int64_t stride = 1;
  return ComputeStatistics({.data = pages.floats(),
                            .dtype = DType::kFloat32,
                            .sizes = {&count, 1},
                            .strides = {&stride, 1},
                            .fleeting = fleeting},
                           nullptr, {.crc32 = crc32});
}

TEST(FleetingMemoryTest, GivesTheBytesAndTheirNumbersToTheBit) {
  Pages pages((size_t{3} << 20) + 4096);
  // A mean far from 0 makes the variance a second pass.
  for (const float more : {0.0f, 1e6f}) {
    for (size_t i = 0; i < pages.memory().size() / sizeof(float); ++i) pages.floats()[i] += more;
    FleetingMemory fleeting(pages.memory(), Room(), GoesOn);
    uint32_t crc32 = 0;
    uint32_t copied_crc32 = 0;
    const Statistics read = StatisticsOf(pages, nullptr, &crc32);
    const Statistics copied = StatisticsOf(pages, &fleeting, &copied_crc32);
    EXPECT_TRUE(fleeting.is_whole());
    EXPECT_EQ(crc32, copied_crc32);
    EXPECT_EQ(read.max, copied.max);
    EXPECT_EQ(read.min, copied.min);
    EXPECT_EQ(read.mean, copied.mean);
    EXPECT_EQ(read.norm, copied.norm);
    EXPECT_EQ(read.variance, copied.variance);
    EXPECT_EQ(read.zero_count, copied.zero_count);
  }
}

TEST(FleetingMemoryTest, SaysThatMemoryIsGone) {
  Pages pages(size_t{1} << 20);
  pages.FreeAfter(size_t{512} << 10);
  FleetingMemory fleeting(pages.memory(), Room(), GoesOn);
  StatisticsOf(pages, &fleeting, nullptr);
  EXPECT_FALSE(fleeting.is_whole());
}

TEST(FleetingMemoryTest, SurvivesMemoryThatGoesMeanwhile) {
  for (int turn = 0; turn < 20; ++turn) {
    Pages pages(size_t{8} << 20);
    FleetingMemory fleeting(pages.memory(), Room(), GoesOn);
    std::thread frees([&] { pages.FreeAfter(4096); });
    StatisticsOf(pages, &fleeting, nullptr);
    frees.join();
  }
}

TEST(FleetingMemoryTest, CopiesNothingMoreWhereItEnds) {
  Pages pages(size_t{1} << 20);
  std::vector<std::span<const std::byte>> pieces;
  const auto goes_on = [&](std::span<const std::byte> piece) {
    pieces.push_back(piece);
    return pieces.size() < 2;
  };
  FleetingMemory fleeting(pages.memory(), Room(), goes_on);
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bytes are what is copied
  EXPECT_EQ(std::memcmp(fleeting.At(pages.floats(), 4096), pages.floats(), 4096), 0);
  EXPECT_TRUE(fleeting.is_whole());
  for (const size_t at : {size_t{512} << 10, size_t{768} << 10}) {
    fleeting.At(pages.floats() + at / sizeof(float), 4096);
    EXPECT_FALSE(fleeting.is_whole());
  }
  ASSERT_EQ(pieces.size(), 2);
  EXPECT_EQ(pieces[0].data(), pages.memory().data());
  EXPECT_EQ(pieces[0].size(), FleetingMemory::kRoom);
}

}  // namespace
}  // namespace msprobe::stats
