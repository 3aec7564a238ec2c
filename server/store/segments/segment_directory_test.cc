#include "server/store/segments/segment_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <unistd.h>

#include <filesystem>

#include "server/store/disk/crash_disk.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

class SegmentDirectoryTest : public testing::Test {
 protected:
  std::unique_ptr<SegmentDirectory> Open() {
    auto opened = SegmentDirectory::Open(directory_ / "segments", rocksdb::Env::Default());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }

  ScratchDirectory directory_;
};

TEST_F(SegmentDirectoryTest, AFileIsOpenUntilItIsSealedAndItsNameSaysSo) {
  {
    auto segments = Open();
    EXPECT_EQ(segments->Create(true)->number, 1u);
    EXPECT_EQ(segments->Create(true)->number, 2u);
    ASSERT_TRUE(segments->Seal(1).ok());
    ASSERT_TRUE(segments->Seal(1).ok()) << "again changes nothing";
  }
  EXPECT_TRUE(fs::exists(directory_ / "segments/0000000001.segment"));
  EXPECT_TRUE(fs::exists(directory_ / "segments/0000000002.open"));
  auto segments = Open();
  EXPECT_FALSE(segments->IsUnproven(1));
  EXPECT_TRUE(segments->IsUnproven(2));
  EXPECT_EQ(segments->next(), 3u) << "a number is not used again";
  ASSERT_TRUE(segments->SealUnproven().ok());
  EXPECT_FALSE(segments->IsUnproven(2));
  EXPECT_TRUE(fs::exists(directory_ / "segments/0000000002.segment"));
}

TEST_F(SegmentDirectoryTest, OtherFilesAreLeftAlone) {
  fs::create_directory(directory_ / "segments");
  for (const char* name : {"notes.txt", "12.segment.bak", "x.open"}) {
    close(open((directory_ / "segments/" + name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  }
  auto segments = Open();
  EXPECT_TRUE(segments->segments().empty());
  EXPECT_TRUE(fs::exists(directory_ / "segments/notes.txt"));
}

TEST_F(SegmentDirectoryTest, WritesGoPastThePageCacheWhereTheFileSystemCan) {
  auto segments = Open();
  const int descriptor = open((directory_ / "probe").c_str(), O_CREAT | O_WRONLY | O_DIRECT | O_CLOEXEC, 0644);
  EXPECT_EQ(segments->Create(true)->file->use_direct_io(), descriptor >= 0);
  if (descriptor >= 0) close(descriptor);
}

TEST_F(SegmentDirectoryTest, ANewNameOutlivesThePower) {
  CrashDisk disk(directory_ / "data", 1);
  fs::create_directory(directory_ / "data/segments");
  auto segments = *SegmentDirectory::Open(directory_ / "data/segments", disk.env());
  auto created = segments->Create(true);
  ASSERT_TRUE(created.ok()) << created.status();
  disk.Crash();
  EXPECT_TRUE(fs::exists(directory_ / "data/segments/0000000001.open"));
}

TEST_F(SegmentDirectoryTest, WhatIsFoundOpenIsSyncedBeforeAnythingRefersToIt) {
  CrashDisk disk(directory_ / "data", 1);
  fs::create_directory(directory_ / "data/segments");
  auto died = *SegmentDirectory::Open(directory_ / "data/segments", disk.env());
  auto created = died->Create(false);
  ASSERT_TRUE(created->file->Append(std::string(8192, 'x')).ok());
  ASSERT_EQ(disk.syncs(), 0u);
  ASSERT_TRUE(SegmentDirectory::Open(directory_ / "data/segments", disk.env()).ok());
  EXPECT_EQ(disk.syncs(), 1u);
  ASSERT_TRUE(died->Seal(1).ok());
  ASSERT_TRUE(SegmentDirectory::Open(directory_ / "data/segments", disk.env()).ok());
  EXPECT_EQ(disk.syncs(), 1u) << "what is sealed is synced: starting does not take longer with each";
}

}  // namespace
}  // namespace msprobe::server
