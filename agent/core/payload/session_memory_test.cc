#include "agent/core/payload/session_memory.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "agent/core/payload/session_place.h"
#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

namespace fs = std::filesystem;

using Gap = v1::Marker::Gap;
using ::testing::HasSubstr;

constexpr size_t kRoom = size_t{8} << 20;

class SessionMemoryTest : public ::testing::Test {
 protected:
  SessionMemoryTest() : directory_(fs::temp_directory_path() / Cat("core-memory-", getpid())) {
    fs::create_directories(spool_);
    origin_.mutable_hello()->set_session("0123456789abcdef");
    origin_.mutable_hello()->set_run("a run");
    origin_.set_spool_directory(spool_);
  }
  ~SessionMemoryTest() override {
    fs::remove(path_);
    fs::remove_all(directory_);
  }

  std::shared_ptr<SessionMemory> Make() {
    auto memory = SessionMemory::Create(path_, link_, kRoom, origin_);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *std::move(memory);
  }
  // Returns what is left of a process that makes a memory, calls `body` with it, and dies.
  template <typename Body>
  absl::StatusOr<SessionMemory::Left> LeftBy(Body&& body) {
    const pid_t child = fork();
    if (child == 0) {
      const std::shared_ptr<SessionMemory> memory = Make();
      body(memory);
      raise(SIGKILL);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    return SessionMemory::TakeOver(path_, link_);
  }
  // The same for a process that lists a piece and dies, after `change` has changed the bytes of the file.
  template <typename Change>
  absl::Status Damaged(Change&& change) {
    {
      const auto left = LeftBy([](const std::shared_ptr<SessionMemory>& memory) {
        static MappedMemory piece = memory->Allocate(8192, SharedFile::Use::kRecords);
        static Listing listing = memory->List(PieceKind::kBatch, piece, {.number = 1}, 100);
      });
      EXPECT_TRUE(left.ok()) << left.status();
      if (left.ok()) left->memory->Leave();
    }
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    change(file);
    file.close();
    const uintmax_t size = fs::file_size(path_);
    absl::Status status = SessionMemory::TakeOver(path_, link_).status();
    EXPECT_EQ(fs::file_size(path_), size) << "it stays as it is";
    fs::remove(path_);
    fs::remove(link_);
    return status;
  }

  const fs::path directory_;
  const fs::path spool_ = directory_ / ".msprobe" / "spool";
  const std::string path_ = Cat(SharedFile::kDirectory, "/msprobe-test-memory-", getpid());
  const std::string link_ = (spool_ / "link").string();
  SessionOrigin origin_;
};

TEST_F(SessionMemoryTest, WhatADeadProcessHadListedIsThereAsItLastWas) {
  const auto left = LeftBy([](const std::shared_ptr<SessionMemory>& memory) {
    // Static, so that nothing is destroyed before the process dies.
    static MappedMemory queue = memory->Allocate(size_t{256} << 10, SharedFile::Use::kRecords);
    static Listing listed = memory->List(PieceKind::kQueue, queue, {.number = 7}, 0);
    std::memset(queue.get(), 'q', 1000);
    listed.SetUsed(1000);
    static MappedMemory batches = memory->Allocate(8192, SharedFile::Use::kRecords);
    std::memset(batches.get(), 'b', batches.size());
    const uint64_t at = *batches.shared_offset();
    const PieceFacts facts{.number = 4, .last_entry = 40, .fragments = 33, .first_step = 3};
    static Listing batch = memory->List(PieceKind::kBatch, at + 104, 500, facts, 500);
    static Listing payload =
        memory->List(PieceKind::kPayload, at + 4096, 4096, {.number = 4, .hash = "0123456789abcdeX"}, 17);
    Listing gone = memory->List(PieceKind::kBatch, at, 100, {.number = 3}, 100);
    gone.Clear();
    memory->NoteCut(4, 40);
    memory->NoteFreed(2);
    memory->NoteServer("host:9");
    const std::array<Loss, 2> losses = {Loss{.step = 5, .fragments = 1, .payloads = 2, .reason = Gap::DROPPED},
                                        Loss{.step = {}, .payloads = 3, .reason = Gap::STALL_EXPIRED}};
    memory->NoteLosses(12, std::span(losses).first(1));
    memory->NoteLosses(12, losses);
  });
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(left->origin.hello().run(), "a run");
  EXPECT_EQ(left->server, "host:9");
  EXPECT_EQ(left->cut_through, 4u);
  EXPECT_EQ(left->cut_entry, 40u);
  EXPECT_EQ(left->freed_through, 2u);
  EXPECT_EQ(left->losses_after, 12u);
  ASSERT_EQ(left->losses.size(), 2u);
  EXPECT_EQ(left->losses[0].step, 5u);
  EXPECT_EQ(left->losses[0].payloads, 2u);
  EXPECT_EQ(left->losses[1].step, std::nullopt);
  EXPECT_EQ(left->losses[1].reason, Gap::STALL_EXPIRED);
  ASSERT_EQ(left->pieces.size(), 3u);
  const auto& [queue, batch, payload] = std::tie(left->pieces[0], left->pieces[1], left->pieces[2]);
  EXPECT_EQ(queue.kind, PieceKind::kQueue);
  EXPECT_EQ(queue.used, 1000u);
  EXPECT_EQ(static_cast<char>(queue.memory.get()[999]), 'q');
  EXPECT_EQ(queue.facts.number, 7u);
  EXPECT_EQ(batch.used, 500u);
  EXPECT_EQ(batch.facts.last_entry, 40u);
  EXPECT_EQ(batch.facts.fragments, 33u);
  EXPECT_EQ(batch.facts.first_step, 3u);
  EXPECT_EQ(static_cast<char>(batch.memory.get()[0]), 'b');
  EXPECT_EQ(payload.used, 17u);
  EXPECT_EQ(payload.hash, "0123456789abcdeX");
  // New memory does not overlap with what was left.
  const MappedMemory more = left->memory->Allocate(size_t{1} << 20, SharedFile::Use::kRecords);
  ASSERT_FALSE(more.empty());
  std::memset(more.get(), 'x', more.size());
  EXPECT_EQ(static_cast<char>(queue.memory.get()[0]), 'q');
  left->memory->Remove();
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_FALSE(fs::exists(fs::symlink_status(link_)));
  EXPECT_FALSE(fs::exists(directory_ / ".msprobe")) << "directories that were made for it, and are empty";
}

TEST_F(SessionMemoryTest, ATableOfManyLinesGrows) {
  constexpr uint64_t kLines = 3000;
  const auto left = LeftBy([](const std::shared_ptr<SessionMemory>& memory) {
    static MappedMemory piece = memory->Allocate(8 * kLines, SharedFile::Use::kRecords);
    static std::vector<Listing> listings;
    const uint64_t at = *piece.shared_offset();
    for (uint64_t i = 0; i < kLines; ++i) {
      listings.push_back(memory->List(PieceKind::kBatch, at + 8 * i, 8, {.number = i + 1}, 8));
    }
    for (uint64_t i = 0; i < kLines; i += 2) listings[i].Clear();
  });
  ASSERT_TRUE(left.ok()) << left.status();
  ASSERT_EQ(left->pieces.size(), kLines / 2);
  for (uint64_t i = 0; i < kLines / 2; ++i) EXPECT_EQ(left->pieces[i].facts.number, 2 * i + 2);
  left->memory->Remove();
}

TEST_F(SessionMemoryTest, APayloadOfABatchThatWasNeverCutIsNotListed) {
  const auto left = LeftBy([](const std::shared_ptr<SessionMemory>& memory) {
    static MappedMemory piece = memory->Allocate(8192, SharedFile::Use::kRecords);
    const uint64_t at = *piece.shared_offset();
    static Listing one = memory->List(PieceKind::kPayload, at, 4096, {.number = 1}, 10);
    memory->NoteCut(1, 10);
    static Listing two = memory->List(PieceKind::kPayload, at + 4096, 4096, {.number = 2}, 10);
  });
  ASSERT_TRUE(left.ok()) << left.status();
  ASSERT_EQ(left->pieces.size(), 1u) << "the queue's entry has the other";
  EXPECT_EQ(left->pieces[0].facts.number, 1u);
  left->memory->Remove();
}

TEST_F(SessionMemoryTest, WhatIsLeftUndoneStaysForTheNextOne) {
  for (int round = 0; round < 3; ++round) {
    auto left =
        round > 0 ? SessionMemory::TakeOver(path_, link_) : LeftBy([](const std::shared_ptr<SessionMemory>& memory) {
          static MappedMemory piece = memory->Allocate(4096, SharedFile::Use::kRecords);
          std::memset(piece.get(), 'p', piece.size());
          static Listing listing = memory->List(PieceKind::kBatch, piece, {.number = 1}, 100);
        });
    ASSERT_TRUE(left.ok()) << left.status();
    ASSERT_EQ(left->pieces.size(), 1u);
    EXPECT_EQ(static_cast<char>(left->pieces[0].memory.get()[50]), 'p');
    left->memory->Leave();
  }
}

TEST_F(SessionMemoryTest, IsForThisUserAlone) {
  const std::shared_ptr<SessionMemory> memory = Make();
  struct stat found {};
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_TRUE(absl::IsUnavailable(SessionMemory::TakeOver(path_, link_).status())) << "its process lives";
  EXPECT_TRUE(SessionMemory::ReadOrigin(path_).ok()) << "whose it is can be read";
  memory->Remove();
}

TEST_F(SessionMemoryTest, DamageAndOtherFormatsAreRefusedAndStay) {
  const auto put = [](uint64_t at, uint64_t value) {
    return [=](std::fstream& file) {
      file.seekp(static_cast<std::streamoff>(at));
      file.write(reinterpret_cast<const char*>(&value), sizeof(value));
    };
  };
  constexpr uint64_t kFormat = 8, kOriginSize = 24, kFirstSlot = 4096 + 128;
  EXPECT_THAT(Damaged(put(0, 0)).message(), HasSubstr("of a format that this version does not know"));
  EXPECT_THAT(Damaged(put(kFormat, 99)).message(), HasSubstr("of a format that this version does not know"));
  EXPECT_THAT(Damaged(put(kOriginSize, uint64_t{1} << 40)).message(), HasSubstr("is damaged: its header"));
  EXPECT_THAT(Damaged(put(4096, 12345)).message(), HasSubstr("is damaged: its table"));
  EXPECT_THAT(Damaged(put(4096, uint64_t{1} << 50)).message(), HasSubstr("is damaged: its table"));
  // Slots are used from the last to the first.
  const uint64_t slot = kFirstSlot + 128 * ((65536 - 128) / 128 - 1);
  EXPECT_TRUE(Damaged(put(slot + 24, 100)).ok()) << "this test knows where the line is";
  EXPECT_THAT(Damaged(put(slot, 77)).message(), HasSubstr("is damaged: its table"));
  EXPECT_THAT(Damaged(put(slot + 8, 0)).message(), HasSubstr("a piece lies outside of it or in another one"));
  EXPECT_THAT(Damaged(put(slot + 8, ~uint64_t{0})).message(), HasSubstr("a piece lies outside"));
  EXPECT_THAT(Damaged(put(slot + 16, ~uint64_t{0})).message(), HasSubstr("a piece lies outside"));
  EXPECT_THAT(Damaged(put(slot + 24, 8193)).message(), HasSubstr("a piece lies outside"));
}

TEST_F(SessionMemoryTest, AFileThatWasCutOffIsRefused) {
  for (const uintmax_t size : {uintmax_t{0}, uintmax_t{100}, uintmax_t{4096}, uintmax_t{70'000}}) {
    const auto left = LeftBy([](const std::shared_ptr<SessionMemory>&) {});
    ASSERT_TRUE(left.ok()) << left.status();
    left->memory->Leave();
    fs::resize_file(path_, size);
    EXPECT_TRUE(absl::IsDataLoss(SessionMemory::TakeOver(path_, link_).status())) << size;
    fs::remove(path_);
    fs::remove(link_);
  }
}

TEST_F(SessionMemoryTest, WithoutAFileEverythingWorksAndNothingIsListed) {
  const std::shared_ptr<SessionMemory> memory = SessionMemory::Private();
  const MappedMemory piece = memory->AllocateRecords(5000);
  ASSERT_FALSE(piece.empty());
  EXPECT_TRUE(memory->List(PieceKind::kQueue, piece, {}, 0).empty());
  memory->NoteCut(1, 1);
  memory->NoteLosses(1, {});
  memory->Leave();
  memory->Remove();
  EXPECT_FALSE(memory->outlives());
}

TEST_F(SessionMemoryTest, LiesWhereItIsToldAndElseSaysWhyNot) {
  origin_.mutable_hello()->set_session(std::string(16, '\x11'));
  const std::string name = SessionMemoryName(origin_.hello().session());
  EXPECT_EQ(SessionOfName(name), std::string(32, '1'));
  for (const char* other :
       {"msprobe-", "msprobe-1111", "other-11111111111111111111111111111111",
        "msprobe-1111111111111111111111111111111g", "msprobe-11111111111111111111111111111111.new"}) {
    EXPECT_EQ(SessionOfName(other), "");
  }
  std::string why_not;
  std::shared_ptr<SessionMemory> memory = MakeSessionMemory(spool_, kRoom, origin_, &why_not);
  EXPECT_EQ(memory->path(), (spool_ / name).string());
  EXPECT_FALSE(fs::is_symlink(spool_ / name));
  memory->Remove();
  memory = MakeSessionMemory("", kRoom, origin_, &why_not);
  EXPECT_TRUE(memory->outlives());
  EXPECT_EQ(why_not, "");
  memory->Remove();
  memory = MakeSessionMemory("off", kRoom, origin_, &why_not);
  EXPECT_FALSE(memory->outlives());
  EXPECT_EQ(why_not, "") << "that was asked for";
  memory = MakeSessionMemory("/proc", kRoom, origin_, &why_not);
  EXPECT_FALSE(memory->outlives());
  EXPECT_THAT(why_not, HasSubstr("cannot make /proc/msprobe-"));
}

}  // namespace
}  // namespace msprobe::core
