#include "agent/stats/write_watch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace msprobe::stats {
namespace {

class WriteWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    watch_ = WriteWatch::Create();
    if (watch_ == nullptr) GTEST_SKIP() << "this kernel has no asynchronous write protection (Linux 6.7), or denies it";
    ASSERT_TRUE(watch_->Arm(bytes(), &range_));
    ASSERT_FALSE(watch_->Written(range_, bytes()));
  }

  // Neither end is at the boundary of a page.
  std::span<std::byte> bytes() { return std::span(memory_).subspan(100, (size_t{1} << 20) - 300); }
  bool Written() { return watch_->Written(range_, bytes()); }

  std::vector<std::byte> memory_ = std::vector<std::byte>(size_t{1} << 20);
  std::unique_ptr<WriteWatch> watch_;
  WriteWatch::Range range_;
};

TEST_F(WriteWatchTest, SeesOneByteAnywhere) {
  for (size_t at : {size_t{0}, size_t{5}, size_t{4096}, size_t{500'000}, bytes().size() - 1}) {
    ASSERT_TRUE(watch_->Arm(bytes(), &range_));
    EXPECT_FALSE(Written());
    volatile std::byte* byte = &bytes()[at];
    *byte = std::byte{static_cast<unsigned char>(1 + static_cast<unsigned char>(*byte))};
    EXPECT_TRUE(Written()) << at;
    EXPECT_TRUE(Written()) << "for good";
  }
}

TEST_F(WriteWatchTest, TellsPrivateMemoryFromSharedMemoryAndFiles) {
  if (!watch_->IsPrivate(bytes())) GTEST_SKIP() << "this kernel cannot be asked (Linux 6.11)";
  const size_t size = size_t{1} << 20;
  for (const int flags : {MAP_SHARED | MAP_ANONYMOUS, MAP_PRIVATE}) {
    const int file = open("/proc/self/exe", O_RDONLY);
    void* const mapped = mmap(nullptr, size, PROT_READ, flags, (flags & MAP_ANONYMOUS) != 0 ? -1 : file, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    EXPECT_FALSE(watch_->IsPrivate({static_cast<std::byte*>(mapped), size})) << flags;
    munmap(mapped, size);
    EXPECT_FALSE(watch_->IsPrivate({static_cast<std::byte*>(mapped), size})) << "nothing is mapped there";
    close(file);
  }
}

TEST_F(WriteWatchTest, ARangeIsArmedPieceByPiece) {
  ASSERT_TRUE(watch_->Begin(bytes(), &range_));
  for (size_t at = 0; at < bytes().size(); at += 100'001) {
    const std::span<std::byte> piece = bytes().subspan(at, std::min<size_t>(100'001, bytes().size() - at));
    ASSERT_TRUE(watch_->Protect(range_, piece));
    EXPECT_FALSE(watch_->Written(range_, piece)) << at;
  }
  EXPECT_FALSE(Written());
  bytes()[400'000] = std::byte{1};
  EXPECT_TRUE(Written());
}

TEST_F(WriteWatchTest, AWriteBehindTheLastPieceIsSeen) {
  ASSERT_TRUE(watch_->Begin(bytes(), &range_));
  ASSERT_TRUE(watch_->Protect(range_, bytes().first(100'001)));
  bytes()[100'000] = std::byte{1};  // on the last page of the first piece
  ASSERT_TRUE(watch_->Protect(range_, bytes().subspan(100'001)));
  EXPECT_TRUE(Written());
}

TEST_F(WriteWatchTest, MemoryThatIsGoneCannotBeArmedPieceByPiece) {
  void* const pages = mmap(nullptr, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const std::span<const std::byte> odd(static_cast<const std::byte*>(pages) + 100, 64 * 4096 - 200);
  munmap(pages, 64 * 4096);
  EXPECT_FALSE(watch_->Begin(odd, &range_));
}

TEST_F(WriteWatchTest, ReadingIsNoWrite) {
  int sum = 0;
  for (std::byte byte : bytes()) sum += std::to_integer<int>(byte);
  EXPECT_EQ(sum, 0);
  EXPECT_FALSE(Written());
}

TEST_F(WriteWatchTest, NeighboursOnTheSamePagesAreNotMeant) {
  memory_[0] = memory_[99] = memory_.back() = std::byte{1};
  EXPECT_FALSE(Written());
}

TEST_F(WriteWatchTest, AWriteIsOfItsPart) {
  bytes()[900'000] = std::byte{1};
  EXPECT_FALSE(watch_->Written(range_, bytes().first(800'000)));
  EXPECT_TRUE(watch_->Written(range_, bytes().last(200'000)));
}

TEST_F(WriteWatchTest, SeesAnotherThreadAndSystemCalls) {
  std::thread([this] { bytes()[300'000] = std::byte{1}; }).join();
  EXPECT_TRUE(Written());
  ASSERT_TRUE(watch_->Arm(bytes(), &range_));
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(read(zero, &bytes()[200'000], 4), 4);
  close(zero);
  EXPECT_TRUE(Written()) << "even of the same value";
}

TEST_F(WriteWatchTest, MemoryThatWentAndCameBackIsWritten) {
  const size_t size = size_t{1} << 20;
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::span<std::byte> memory(static_cast<std::byte*>(mapped), size);
  WriteWatch::Range range;
  ASSERT_TRUE(watch_->Arm(memory, &range));
  EXPECT_FALSE(watch_->Written(range, memory)) << "untouched pages too";
  munmap(mapped, size);
  ASSERT_EQ(mmap(mapped, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), mapped);
  EXPECT_TRUE(watch_->Written(range, memory));
  munmap(mapped, size);
  watch_->Disarm(range);
}

TEST_F(WriteWatchTest, TheOutsideOfAMappingCannotBeArmed) {
  const size_t size = size_t{1} << 20;
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(mapped, size);
  WriteWatch::Range range;
  EXPECT_FALSE(watch_->Arm({static_cast<std::byte*>(mapped), size}, &range));
  EXPECT_FALSE(watch_->Arm(bytes().first(100), &range)) << "small";
}

TEST_F(WriteWatchTest, ADisarmedRangeIsWritten) {
  watch_->Disarm(range_);
  EXPECT_TRUE(Written());
  bytes()[4096] = std::byte{1};
}

TEST_F(WriteWatchTest, InAForkedChildEverythingIsWritten) {
  const pid_t child = fork();
  if (child == 0) _exit(Written() && !watch_->Arm(bytes(), &range_) ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(Written());
}

}  // namespace
}  // namespace msprobe::stats
