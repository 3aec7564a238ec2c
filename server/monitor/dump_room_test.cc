#include "server/monitor/dump_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/format/cat.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class DumpRoomTest : public testing::Test {
 protected:
  DumpRoomTest() { std::filesystem::create_directories(Data()); }

  std::string Data() const { return directory_ / "dump/.msprobe/boot"; }
  std::string Rank(int step) const { return directory_ / Cat("dump/step", step, "/rank0"); }

  void Write(const std::string& path, uint64_t bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << std::string(bytes, 'x');
  }
  void WriteStep(int step, uint64_t bytes) const { Write(Rank(step) + "/dump.json", bytes); }

  DumpRoom::Options Quota(uint64_t bytes) const {
    return {.dump_path = directory_ / "dump", .data_directory = Data(), .quota_bytes = bytes};
  }

  ScratchDirectory directory_;
  absl::Time now_ = absl::Now();
};

TEST_F(DumpRoomTest, StepsStoreAndSpoolCountTowardsTheQuota) {
  WriteStep(0, 3 * kMiB);
  Write(Data() + "/000001.log", 2 * kMiB);
  Write(directory_ / "dump/.msprobe/spool/segment", kMiB);
  Write(directory_ / "dump/notes.txt", 50 * kMiB);  // somebody's own
  DumpRoom room(Quota(100 * kMiB));
  room.Look(now_);
  EXPECT_GE(room.state().bytes(), 6 * kMiB);
  EXPECT_LT(room.state().bytes(), 7 * kMiB);
  EXPECT_EQ(room.state().steps(), 1u);
  EXPECT_EQ(room.state().limit_bytes(), 100 * kMiB);
  EXPECT_TRUE(room.state().by_quota());
  EXPECT_FALSE(room.state().full());
}

TEST_F(DumpRoomTest, IsFullAtTheQuotaAndRefusesAQuarterBeyondIt) {
  DumpRoom room(Quota(8 * kMiB));
  room.Look(now_);
  EXPECT_FALSE(room.state().full());

  room.NoteWaiting();
  WriteStep(0, 9 * kMiB);
  room.NoteExported({Rank(0)});
  room.Look(now_ += absl::Seconds(1));
  EXPECT_TRUE(room.state().full());
  EXPECT_TRUE(room.Admit().ok()) << "what was on its way is taken";

  room.NoteWaiting();
  WriteStep(1, 2 * kMiB);
  room.NoteExported({Rank(1)});
  room.Look(now_ += absl::Seconds(1));
  EXPECT_TRUE(absl::IsResourceExhausted(room.Admit()));
  EXPECT_THAT(room.Admit().message(), testing::HasSubstr("may have 8 MiB (dump_quota_mb)"));
}

TEST_F(DumpRoomTest, StepsThatWaitCountAsThoseThatWereExported) {
  DumpRoom room(Quota(8 * kMiB));
  room.Look(now_);
  WriteStep(0, 3 * kMiB);
  room.NoteWaiting();
  room.NoteExported({Rank(0)});
  room.NoteWaiting();
  room.NoteWaiting();
  room.Look(now_ += absl::Seconds(1));
  EXPECT_TRUE(room.state().full()) << room.state().bytes();
  // Those steps could not be written, so they take no room.
  room.NoteExported({});
  room.NoteExported({});
  room.Look(now_ += absl::Seconds(1));
  EXPECT_FALSE(room.state().full());
}

TEST_F(DumpRoomTest, AFileOfSeveralStepsCountsOnce) {
  WriteStep(0, 3 * kMiB);
  DumpRoom room(Quota(100 * kMiB));
  room.Look(now_);
  std::filesystem::create_directories(Rank(1));
  std::filesystem::create_hard_link(Rank(0) + "/dump.json", Rank(1) + "/dump.json");
  room.NoteWaiting();
  room.NoteExported({Rank(1)});
  room.Look(now_ += absl::Seconds(1));
  EXPECT_LT(room.state().bytes(), 4 * kMiB);
  DumpRoom later(Quota(100 * kMiB));
  later.Look(now_);
  EXPECT_GE(later.state().bytes(), 3 * kMiB);
  EXPECT_LT(later.state().bytes(), 4 * kMiB);
}

TEST_F(DumpRoomTest, WhatSomebodyTakesAwayIsRoomAgain) {
  WriteStep(0, 6 * kMiB);
  WriteStep(1, 6 * kMiB);
  DumpRoom room(Quota(10 * kMiB));
  room.Look(now_);
  EXPECT_TRUE(room.state().full());
  std::filesystem::remove_all(directory_ / "dump/step0");
  room.Look(now_ += absl::Seconds(1));
  EXPECT_TRUE(room.state().full()) << "steps are counted rarely, as they may be many";
  room.Look(now_ += absl::Seconds(10));
  EXPECT_FALSE(room.state().full());
  EXPECT_EQ(room.state().steps(), 1u);
}

TEST_F(DumpRoomTest, WithoutAQuotaHalfOfWhatIsFreeMayBeTakenAndATenthIsLeft) {
  WriteStep(0, 4 * kMiB);
  const uint64_t free = std::filesystem::space(directory_.path()).available;
  DumpRoom room(Quota(0));
  room.Look(now_);
  const v1::DumpRoom state = room.state();
  EXPECT_FALSE(state.by_quota());
  EXPECT_FALSE(state.full());
  // Not exact: other programs use the disk meanwhile.
  EXPECT_NEAR(static_cast<double>(state.limit_bytes()), 4.0 * kMiB + 0.5 * free, 0.05 * free);
  EXPECT_NEAR(static_cast<double>(state.kept_free_bytes()), 0.1 * free, 0.01 * free);
}

}  // namespace
}  // namespace msprobe::server
