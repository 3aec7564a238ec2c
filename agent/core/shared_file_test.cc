#include "agent/core/shared_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

constexpr size_t kRoom = size_t{8} << 20;
constexpr size_t kPiece = size_t{1} << 20;

class SharedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    file_ = SharedFile::Create(kRoom);
    if (file_ == nullptr || file_->Allocate(kPiece).empty()) {
      GTEST_SKIP() << SharedFile::kDirectory << " has less than a GiB, or half of it is in use";
    }
  }

  static std::string PathOf(const SharedFile& file) { return Cat(SharedFile::kDirectory, "/", file.name()); }
  static std::string Read(const SharedFile& file, uint64_t offset, size_t size) {
    std::string content(size, '\0');
    std::ifstream in(PathOf(file));
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(content.data(), static_cast<std::streamsize>(size));
    return content;
  }
  // Of pages that the system holds for it.
  static uint64_t HeldBytes(const SharedFile& file) {
    struct stat found {};
    EXPECT_EQ(stat(PathOf(file).c_str(), &found), 0);
    return static_cast<uint64_t>(found.st_blocks) * 512;
  }
  // Runs `body` in a forked child and gives its exit status.
  template <typename Body>
  static int InChild(Body&& body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }

  std::shared_ptr<SharedFile> file_;
};

TEST_F(SharedFileTest, OthersReadWhatIsWrittenToAPiece) {
  const MappedMemory first = file_->Allocate(kPiece), second = file_->Allocate(5000);
  ASSERT_FALSE(first.empty() || second.empty());
  EXPECT_GE(second.size(), 5000u);
  std::memset(first.get(), 'a', first.size());
  std::memset(second.get(), 'b', second.size());
  EXPECT_EQ(Read(*file_, *first.shared_offset(), kPiece), std::string(kPiece, 'a'));
  EXPECT_EQ(Read(*file_, *second.shared_offset(), 5000), std::string(5000, 'b'));
  struct stat found {};
  ASSERT_EQ(stat(PathOf(*file_).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(SharedFileTest, PiecesHaveTheirPagesAndFreedOnesGoBack) {
  EXPECT_EQ(HeldBytes(*file_), 0u);
  MappedMemory piece = file_->Allocate(kPiece);
  EXPECT_GE(HeldBytes(*file_), kPiece) << "before anything is written";
  piece = MappedMemory();
  EXPECT_EQ(HeldBytes(*file_), 0u);
}

TEST_F(SharedFileTest, PlacesOfFreedPiecesAreUsedAgainWhateverTheOrder) {
  for (int round = 0; round < 100; ++round) {
    std::vector<MappedMemory> pieces;
    for (int i = 0; i < 16; ++i) pieces.push_back(file_->Allocate(kPiece));
    for (const MappedMemory& piece : pieces) ASSERT_FALSE(piece.empty());
    EXPECT_TRUE(file_->Allocate(kPiece).empty()) << "twice the room is the most";
    // Every other one first, so that neighbours on both sides are joined.
    for (size_t i = static_cast<size_t>(round) % 2; i < pieces.size(); i += 2) pieces[i] = MappedMemory();
  }
  EXPECT_FALSE(file_->Allocate(2 * kRoom).empty()) << "all of it lies together again";
}

TEST_F(SharedFileTest, TheNameGoesWithItAndPiecesStay) {
  MappedMemory piece = file_->Allocate(kPiece);
  const std::string path = PathOf(*file_);
  const int reader = open(path.c_str(), O_RDONLY);
  file_.reset();
  EXPECT_TRUE(std::filesystem::exists(path)) << "a piece is left";
  std::memset(piece.get(), 'x', piece.size());
  const uint64_t offset = *piece.shared_offset();
  char byte = 0;
  EXPECT_EQ(pread(reader, &byte, 1, static_cast<off_t>(offset)), 1);
  EXPECT_EQ(byte, 'x');
  piece = MappedMemory();
  EXPECT_FALSE(std::filesystem::exists(path));
  close(reader);
}

TEST_F(SharedFileTest, WhatAKilledProcessLeftGoesWithTheNextOne) {
  int name[2];
  ASSERT_EQ(pipe(name), 0);
  const int status = InChild([&] {
    const std::shared_ptr<SharedFile> file = SharedFile::Create(kRoom);
    MappedMemory piece = file->Allocate(kPiece);
    std::memset(piece.get(), 1, piece.size());
    if (write(name[1], file->name().data(), file->name().size()) < 0) _exit(1);
    raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  std::string left(40, '\0');
  ASSERT_EQ(read(name[0], left.data(), left.size()), 40);
  close(name[0]);
  close(name[1]);
  const std::filesystem::path path = Cat(SharedFile::kDirectory, "/", left);
  EXPECT_TRUE(std::filesystem::exists(path));
  const std::shared_ptr<SharedFile> next = SharedFile::Create(kRoom);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists(PathOf(*file_))) << "this process lives";
}

TEST_F(SharedFileTest, OtherFilesAreLeftAlone) {
  const std::filesystem::path other = Cat(SharedFile::kDirectory, "/msprobe-", getpid(), "-not-ours");
  std::ofstream(other) << "x";
  const std::shared_ptr<SharedFile> next = SharedFile::Create(kRoom);
  EXPECT_TRUE(std::filesystem::exists(other));
  std::filesystem::remove(other);
}

TEST_F(SharedFileTest, AForkedChildChangesNeitherFileNorName) {
  MappedMemory piece = file_->Allocate(kPiece);
  std::memset(piece.get(), 'p', piece.size());
  const int status = InChild([&] {
    piece = MappedMemory();
    EXPECT_TRUE(file_->Allocate(kPiece).empty());
    file_.reset();
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Read(*file_, *piece.shared_offset(), kPiece), std::string(kPiece, 'p'));
  EXPECT_FALSE(file_->Allocate(kPiece).empty());
}

TEST_F(SharedFileTest, ThereIsNoneWhereFilesAreLimitedOrCannotBe) {
  EXPECT_EQ(SharedFile::Create(kRoom, "/nowhere"), nullptr);
  EXPECT_EQ(SharedFile::Create(kRoom, "/proc/self"), nullptr);
  EXPECT_EQ(InChild([] {
              const rlimit limit{size_t{1} << 20, size_t{1} << 20};
              setrlimit(RLIMIT_FSIZE, &limit);
              EXPECT_EQ(SharedFile::Create(kRoom), nullptr);
            }),
            0);
}

}  // namespace
}  // namespace msprobe::core
