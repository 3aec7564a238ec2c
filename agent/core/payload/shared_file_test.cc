#include "agent/core/payload/shared_file.h"

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
    absl::StatusOr<std::shared_ptr<SharedFile>> file = Make();
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    if (Allocate(kPiece).empty()) {
      GTEST_SKIP() << SharedFile::kDirectory << " has less than a GiB, or half of it is in use";
    }
  }
  void TearDown() override {
    if (file_ != nullptr) file_->Remove();
  }

  // Makes and publishes a file with a unique name.
  static absl::StatusOr<std::shared_ptr<SharedFile>> Make(const std::string& directory = SharedFile::kDirectory) {
    static int made = 0;
    absl::StatusOr<std::shared_ptr<SharedFile>> file =
        SharedFile::Create(Cat(directory, "/msprobe-test-", getpid(), "-", made++), kRoom);
    const absl::Status published = file.ok() ? (*file)->Publish() : file.status();
    return published.ok() ? file : published;
  }
  MappedMemory Allocate(size_t size) { return file_->Allocate(size, SharedFile::Use::kPayloads); }

  static std::string Read(const SharedFile& file, uint64_t offset, size_t size) {
    std::string content(size, '\0');
    std::ifstream in(file.path());
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(content.data(), static_cast<std::streamsize>(size));
    return content;
  }
  // The bytes of the pages that the system holds for the file.
  static uint64_t HeldBytes(const SharedFile& file) {
    struct stat found {};
    EXPECT_EQ(stat(file.path().c_str(), &found), 0);
    return static_cast<uint64_t>(found.st_blocks) * 512;
  }
  // Runs `body` in a forked child and returns its exit status.
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
  const MappedMemory first = Allocate(kPiece), second = Allocate(5000);
  ASSERT_FALSE(first.empty() || second.empty());
  EXPECT_GE(second.size(), 5000u);
  std::memset(first.get(), 'a', first.size());
  std::memset(second.get(), 'b', second.size());
  EXPECT_EQ(Read(*file_, *first.shared_offset(), kPiece), std::string(kPiece, 'a'));
  EXPECT_EQ(Read(*file_, *second.shared_offset(), 5000), std::string(5000, 'b'));
  struct stat found {};
  ASSERT_EQ(stat(file_->path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(SharedFileTest, PiecesHaveTheirPagesAndFreedOnesGoBack) {
  EXPECT_EQ(HeldBytes(*file_), 0u);
  MappedMemory piece = Allocate(kPiece);
  EXPECT_GE(HeldBytes(*file_), kPiece) << "before anything is written";
  piece = MappedMemory();
  EXPECT_EQ(HeldBytes(*file_), 0u);
}

TEST_F(SharedFileTest, PlacesOfFreedPiecesAreUsedAgainWhateverTheOrder) {
  for (int round = 0; round < 100; ++round) {
    std::vector<MappedMemory> pieces;
    for (int i = 0; i < 16; ++i) pieces.push_back(Allocate(kPiece));
    for (const MappedMemory& piece : pieces) ASSERT_FALSE(piece.empty());
    EXPECT_TRUE(Allocate(kPiece).empty()) << "twice the room is the most";
    // Free every other piece first, so that later ones are joined with neighbours on both sides.
    for (size_t i = static_cast<size_t>(round) % 2; i < pieces.size(); i += 2) pieces[i] = MappedMemory();
  }
  EXPECT_FALSE(Allocate(2 * kRoom).empty()) << "all of it lies together again";
}

TEST_F(SharedFileTest, TheNameGoesWithRemoveAndPiecesStay) {
  const MappedMemory piece = Allocate(kPiece);
  const int reader = open(file_->path().c_str(), O_RDONLY);
  file_->Remove();
  EXPECT_FALSE(std::filesystem::exists(file_->path()));
  std::memset(piece.get(), 'x', piece.size());
  char byte = 0;
  EXPECT_EQ(pread(reader, &byte, 1, static_cast<off_t>(*piece.shared_offset())), 1);
  EXPECT_EQ(byte, 'x');
  close(reader);
}

// Makes a file in a process that writes 'k' to a first piece of kPiece bytes and is then killed. Returns the path.
std::string LeftByAKilledProcess(bool publish) {
  std::string path = Cat(SharedFile::kDirectory, "/msprobe-test-", getpid(), "-killed");
  const pid_t child = fork();
  if (child == 0) {
    const auto file = SharedFile::Create(path, kRoom);
    const MappedMemory piece = (*file)->Allocate(kPiece, SharedFile::Use::kRecords);
    std::memset(piece.get(), 'k', piece.size());
    if (publish && !(*file)->Publish().ok()) _exit(1);
    raise(SIGKILL);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  return path;
}

TEST_F(SharedFileTest, WhatAKilledProcessLeftIsTakenOverOnceAndStaysUntilItIsRemoved) {
  const std::string path = LeftByAKilledProcess(true);
  {
    auto left = SharedFile::TakeOver(path);
    ASSERT_TRUE(left.ok()) << left.status();
    EXPECT_TRUE(absl::IsUnavailable(SharedFile::TakeOver(path).status())) << "once";
    EXPECT_TRUE((*left)->Claim((*left)->size() - kPiece / 2, kPiece).empty()) << "beyond the end";
    const MappedMemory piece = (*left)->Claim(0, kPiece);
    ASSERT_FALSE(piece.empty());
    EXPECT_EQ(static_cast<char>(piece.get()[kPiece - 1]), 'k');
    EXPECT_TRUE((*left)->Claim(kPiece - 1, 10).empty()) << "a part of it is claimed";
    const MappedMemory more = (*left)->Allocate(kPiece, SharedFile::Use::kRecords);
    EXPECT_GE(*more.shared_offset(), kPiece);
    (*left)->Leave();
  }
  const auto again = SharedFile::TakeOver(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(static_cast<char>((*again)->Claim(0, kPiece).get()[0]), 'k') << "what was destroyed after Leave is there";
  (*again)->Remove();
  EXPECT_TRUE(absl::IsNotFound(SharedFile::TakeOver(path).status()));
}

TEST_F(SharedFileTest, AFileOfALivingProcessIsInUseAlsoForItsForkedChildren) {
  EXPECT_TRUE(absl::IsUnavailable(SharedFile::TakeOver(file_->path()).status()));
  // A child that outlives its parent must not look like a living parent.
  const std::string path = Cat(SharedFile::kDirectory, "/msprobe-test-", getpid(), "-parent");
  int began[2], ended[2];
  ASSERT_EQ(pipe(began) + pipe(ended), 0);
  const int status = InChild([&] {
    const auto file = SharedFile::Create(path, kRoom);
    if (!(*file)->Publish().ok()) _exit(1);
    if (fork() == 0) {
      char byte = 0;
      close(ended[1]);
      if (write(began[1], &byte, 1) != 1) _exit(1);
      [[maybe_unused]] const ssize_t got = read(ended[0], &byte, 1);  // until the test has looked
      _exit(0);
    }
    char byte;
    if (read(began[0], &byte, 1) != 1) _exit(1);
    raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  const auto left = SharedFile::TakeOver(path);
  EXPECT_TRUE(left.ok()) << left.status();
  for (const int end : {began[0], began[1], ended[0], ended[1]}) close(end);
  if (left.ok()) (*left)->Remove();
}

TEST_F(SharedFileTest, WhatWasNeverPublishedGoesWithTheNextOne) {
  const std::string path = LeftByAKilledProcess(false);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists(Cat(path, ".new")));
  const auto next = Make();
  EXPECT_FALSE(std::filesystem::exists(Cat(path, ".new")));
  (*next)->Remove();
}

TEST_F(SharedFileTest, OtherFilesAreLeftAlone) {
  const std::filesystem::path other = Cat(SharedFile::kDirectory, "/msprobe-", getpid(), "-not-ours");
  const std::string killed = LeftByAKilledProcess(true);
  std::ofstream(other) << "x";
  EXPECT_TRUE(absl::IsPermissionDenied(SharedFile::TakeOver(other).status())) << "others may read it";
  const auto next = Make();
  EXPECT_TRUE(std::filesystem::exists(other));
  EXPECT_TRUE(std::filesystem::exists(killed)) << "it holds what was captured";
  (*next)->Remove();
  std::filesystem::remove(other);
  std::filesystem::remove(killed);
}

TEST_F(SharedFileTest, AForkedChildChangesNeitherFileNorName) {
  MappedMemory piece = Allocate(kPiece);
  std::memset(piece.get(), 'p', piece.size());
  const int status = InChild([&] {
    EXPECT_EQ(static_cast<char>(piece.get()[1]), 'p') << "it sees what was there";
    std::memset(piece.get(), 'c', piece.size());
    file_->Remove();
    piece = MappedMemory();
    EXPECT_TRUE(Allocate(kPiece).empty());
    file_.reset();
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Read(*file_, *piece.shared_offset(), kPiece), std::string(kPiece, 'p'));
  EXPECT_FALSE(Allocate(kPiece).empty());
}

TEST_F(SharedFileTest, ThereIsNoneWhereFilesAreLimitedOrCannotBe) {
  EXPECT_FALSE(Make("/nowhere").ok());
  EXPECT_FALSE(Make("/proc/self").ok());
  EXPECT_EQ(InChild([] {
              const rlimit limit{size_t{1} << 20, size_t{1} << 20};
              setrlimit(RLIMIT_FSIZE, &limit);
              EXPECT_TRUE(absl::IsFailedPrecondition(Make().status()));
            }),
            0);
}

}  // namespace
}  // namespace msprobe::core
