#include "agent/core/transport/outbox/spool.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/core/str_cat.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

class SpoolTest : public ::testing::Test {
 protected:
  SpoolTest()
      : directory_(std::filesystem::temp_directory_path() /
                   Cat("core-spool-", getpid(), "-", ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
  }
  ~SpoolTest() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path Only() const { return *std::filesystem::directory_iterator(directory_); }

  const std::filesystem::path directory_;
};

TEST_F(SpoolTest, GivesBackWhatItTookInAnyOrder) {
  Spool spool(directory_, "s", 1 << 20);
  EXPECT_FALSE(std::filesystem::exists(directory_));
  const Spool::Place first = *spool.Append("a", "one"), second = *spool.Append("b", ""), third = *spool.Append("", "3");
  EXPECT_EQ(spool.Read(third)->content, "3");
  EXPECT_EQ(spool.Read(first)->key, "a");
  EXPECT_EQ(spool.Read(first)->content, "one");
  EXPECT_EQ(spool.Read(second)->content, "");
  const absl::StatusOr<std::vector<Spool::Entry>> entries = Spool::ReadSegment(Only());
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 3);
  EXPECT_EQ((*entries)[1].key, "b");
}

// It names servers, and files with tokens, of its own choice.
TEST_F(SpoolTest, WhatAnotherUserLeftIsRefused) {
  SessionOrigin origin;
  origin.mutable_hello()->set_session("0123456789abcdef");
  {
    Spool spool(directory_, "s", 1 << 20, origin.SerializeAsString());
    ASSERT_TRUE(spool.Append("a", "one").ok());
    spool.Keep();
  }
  const std::filesystem::path segment = Only();
  ASSERT_TRUE(Spool::ReadOrigin(directory_, "s").ok());
  std::filesystem::rename(segment, segment.string() + ".elsewhere");
  std::filesystem::create_symlink(segment.string() + ".elsewhere", segment);
  EXPECT_EQ(Spool::TakeOver(directory_, "s").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(Spool::ReadOrigin(directory_, "s").ok());
  std::filesystem::rename(segment.string() + ".elsewhere", segment);
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  ASSERT_EQ(chown(segment.c_str(), 65534, 65534), 0);
  EXPECT_EQ(Spool::TakeOver(directory_, "s").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(Spool::ReadOrigin(directory_, "s").ok());
  EXPECT_TRUE(std::filesystem::exists(segment));
}

TEST_F(SpoolTest, TheQuotaHoldsAndReleasedSegmentsMakeRoom) {
  Spool spool(directory_, "s", 400'000);
  std::vector<Spool::Place> places;
  const std::string content(50'000, 'x');
  while (true) {
    const absl::StatusOr<Spool::Place> place = spool.Append("k", content);
    if (!place.ok()) {
      EXPECT_EQ(place.status().code(), absl::StatusCode::kResourceExhausted);
      break;
    }
    places.push_back(*place);
  }
  EXPECT_EQ(places.size(), 7);
  EXPECT_LE(spool.held_bytes(), 400'000);
  spool.Release(places[0]);
  spool.Release(places[1]);
  EXPECT_TRUE(spool.Append("k", content).ok());
  EXPECT_EQ(spool.Read(places[6])->content, content);
  EXPECT_TRUE(spool.Verify(places[6]).ok());
  EXPECT_EQ(spool.ReadPart(places[6], 1, 2)->bytes, content.substr(1, 2));
  EXPECT_FALSE(spool.ReadPart(places[6], 1, 2)->last);
  EXPECT_EQ(spool.ReadPart(places[6], 1, content.size())->bytes, content.substr(1));
  EXPECT_TRUE(spool.ReadPart(places[6], 1, content.size())->last);
  for (size_t i = 2; i < places.size(); ++i) spool.Release(places[i]);
}

TEST_F(SpoolTest, LeavesNoFileBehind) {
  {
    Spool spool(directory_, "s", 1 << 20);
    ASSERT_TRUE(spool.Append("k", "content").ok());
    EXPECT_FALSE(std::filesystem::is_empty(directory_));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(SpoolTest, DamageIsFoundAndACutOffTailEndsTheSegment) {
  Spool spool(directory_, "s", 1 << 20);
  ASSERT_TRUE(spool.Append("a", "first").ok());
  const Spool::Place second = *spool.Append("b", "second");
  const uint64_t whole = std::filesystem::file_size(Only());
  const std::filesystem::path copy = directory_ / "copy";
  for (uint64_t size = 0; size < whole; ++size) {
    std::filesystem::copy_file(Only().filename() == "copy" ? directory_ / "s-0.spool" : Only(), copy,
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(copy, size);
    EXPECT_EQ(Spool::ReadSegment(copy)->size(), size >= second.offset ? 1 : 0);
  }
  std::fstream file(directory_ / "s-0.spool", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(whole - 1));
  file.put('X');
  file.close();
  EXPECT_EQ(spool.Read(second).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(spool.Verify(second).code(), absl::StatusCode::kDataLoss);
}

TEST_F(SpoolTest, ADirectoryThatCannotBeMadeIsAnError) {
  Spool spool("/proc/nothing", "s", 1 << 20);
  EXPECT_FALSE(spool.Append("k", "c").ok());
  EXPECT_FALSE(spool.failure().ok());
  EXPECT_EQ(spool.held_bytes(), 0);
}

TEST_F(SpoolTest, ACheckNamesWhatStandsInTheWayAndMakesNothing) {
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ / "file") << "no directory";
  EXPECT_EQ(Spool(directory_ / "file" / "spool", "s", 1 << 20).Check().message(),
            (directory_ / "file").string() + " is not a directory");
  EXPECT_TRUE(Spool(directory_ / "none" / "yet", "s", 1 << 20).Check().ok());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "none"));
}

TEST_F(SpoolTest, IsTakenOverFromAProcessThatIsGone) {
  const std::string kept = directory_.string() + "/kept";
  std::filesystem::create_directories(kept);
  {
    SessionOrigin origin;
    origin.mutable_hello()->set_session("whose");
    Spool spool(directory_, "s", 1 << 20, origin.SerializeAsString());
    const Spool::Place released = *spool.Append("a", "one");
    ASSERT_TRUE(spool.Append("b", std::string(100, 'b')).ok());
    ASSERT_TRUE(spool.Append("c", std::string(100, 'c')).ok());
    spool.Release(released);
    EXPECT_EQ(Spool::TakeOver(directory_, "s").status().code(), absl::StatusCode::kUnavailable) << "it lives";
    // As a crash in the middle of a write leaves it.
    std::filesystem::copy(directory_ / "s-0.spool", kept + "/s-0.spool");
    std::filesystem::resize_file(kept + "/s-0.spool", std::filesystem::file_size(kept + "/s-0.spool") - 1);
  }
  EXPECT_EQ(Spool::Names(kept), std::vector<std::string>{"s"});
  {
    const absl::StatusOr<Spool::Left> left = Spool::TakeOver(kept, "s");
    ASSERT_TRUE(left.ok()) << left.status();
    EXPECT_EQ(left->origin.hello().session(), "whose");
    ASSERT_EQ(left->entries.size(), 2) << "what was released too, as its segment is there";
    EXPECT_EQ(left->entries[0].key, "a");
    EXPECT_EQ(left->spool.Read(left->entries[1].place)->content, std::string(100, 'b'));
  }
  absl::StatusOr<Spool::Left> again = Spool::TakeOver(kept, "s");
  ASSERT_TRUE(again.ok()) << "what is not released stays: " << again.status();
  for (const Spool::Found& entry : again->entries) again->spool.Release(entry.place);
  EXPECT_TRUE(Spool::Names(kept).empty());
}

TEST_F(SpoolTest, SegmentsThatSayNobodysNameAreLeftAlone) {
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ / "s-0.spool") << "no spool";
  EXPECT_EQ(Spool::TakeOver(directory_, "s").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Spool::Names(directory_).size(), 1);
}

}  // namespace
}  // namespace msprobe::core
