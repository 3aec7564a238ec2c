#include "server/store/segments/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "server/store/disk/crash_disk.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string Noise(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::string content(bytes, '\0');
  for (char& c : content) c = static_cast<char>(random());
  return content;
}

class SegmentsTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directory(directory_ / "data"); }
  std::unique_ptr<Segments> Open(rocksdb::Env* env = rocksdb::Env::Default(), uint64_t roll_bytes = 64 << 20) {
    auto opened = Segments::Open({.directory = directory_ / "data/segments",
                                  .env = env,
                                  .roll_bytes = roll_bytes,
                                  .on_lost = [this](const absl::Status&) { ++lost_; }});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  static std::string Read(const Segments& segments, const Extent& extent) {
    std::string content;
    absl::Status status = segments.directory().Read(extent, content);
    return status.ok() ? content : status.ToString();
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_ / "data/segments")) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  ScratchDirectory directory_;
  std::atomic<int> lost_ = 0;
};

TEST_F(SegmentsTest, WhatIsAppendedIsReadAtOnceAndAfterReopening) {
  std::vector<std::pair<Extent, std::string>> written;
  {
    auto segments = Open();
    for (size_t size : {1, 4095, 4096, 4097, 1 << 20, (1 << 20) + 1, 5'000'000}) {
      std::string content = Noise(size, static_cast<uint32_t>(size));
      auto extent = segments->Append(content);
      ASSERT_TRUE(extent.ok()) << extent.status();
      EXPECT_EQ(extent->offset % Extent::kAlignment, 0u);
      EXPECT_EQ(Read(*segments, *extent), content) << size;
      BlockBuffer aligned;
      std::memcpy(aligned.Take(size), content.data(), size);
      auto direct = segments->Append(std::string_view(aligned.Take(size), size));
      ASSERT_TRUE(direct.ok()) << direct.status();
      EXPECT_EQ(Read(*segments, *direct), content) << size << " bytes at the beginning of a block";
      written.emplace_back(*direct, content);
      written.emplace_back(*extent, std::move(content));
    }
  }
  EXPECT_THAT(Names(), testing::ElementsAre("0000000001.segment")) << "a clean end leaves nothing to look at";
  auto segments = Open();
  for (const auto& [extent, content] : written) EXPECT_EQ(Read(*segments, extent), content) << content.size();
  EXPECT_EQ(segments->Append("next")->segment, 2u) << "what was sealed does not grow";
}

TEST_F(SegmentsTest, SeveralAreAppendedTogetherAdjacentOrNot) {
  BlockBuffer adjacent, elsewhere;
  const std::vector<std::string> contents = {Noise(5000, 1), Noise(8192, 2), Noise(70'000, 3), Noise(9, 4),
                                             Noise(6000, 5)};
  std::vector<std::string_view> views;
  size_t used = 0;
  for (size_t i = 0; i < 3; ++i) {
    char* const at = adjacent.Take(100'000) + used;
    contents[i].copy(at, contents[i].size());
    views.emplace_back(at, contents[i].size());
    used += (contents[i].size() + 4095) / 4096 * 4096;
  }
  views.push_back(contents[3]);
  std::memcpy(elsewhere.Take(6000), contents[4].data(), 6000);
  views.emplace_back(elsewhere.Take(6000), 6000);
  std::vector<Extent> extents;
  {
    auto segments = Open();
    ASSERT_TRUE(segments->Append("before").ok());
    auto appended = segments->Append(views);
    ASSERT_TRUE(appended.ok()) << appended.status();
    extents = *appended;
    EXPECT_EQ(segments->Append("behind")->offset, 4096u + 8192 + 8192 + 73'728 + 4096 + 8192);
  }
  auto segments = Open();
  ASSERT_EQ(extents.size(), contents.size());
  for (size_t i = 0; i < contents.size(); ++i) EXPECT_EQ(Read(*segments, extents[i]), contents[i]) << i;
}

TEST_F(SegmentsTest, AFullFileIsSealedAndTheNextOneBegun) {
  auto segments = Open(rocksdb::Env::Default(), 16384);
  for (uint32_t n = 0; n < 10; ++n) ASSERT_TRUE(segments->Append(Noise(4096, n)).ok());
  EXPECT_THAT(Names(), testing::ElementsAre("0000000001.segment", "0000000002.segment", "0000000003.open"));
  EXPECT_EQ(segments->directory().bytes(), 40960u);
}

TEST_F(SegmentsTest, AWrongByteAndAMissingOneAreDamage) {
  Extent first, last;
  {
    auto segments = Open();
    first = *segments->Append(Noise(5000, 1));
    last = *segments->Append(Noise(5000, 2));
  }
  const fs::path path = directory_ / "data/segments/0000000001.segment";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4999).put('\0');
  }
  fs::resize_file(path, last.offset + 100);
  auto segments = Open();
  EXPECT_THAT(Read(*segments, first), HasSubstr("DATA_LOSS"));
  EXPECT_THAT(Read(*segments, last), HasSubstr("DATA_LOSS"));
  EXPECT_THAT(Read(*segments, {77, 0, 10, 0}), HasSubstr("NOT_FOUND"));
}

TEST_F(SegmentsTest, ADiskThatIsFullRefusesOneAppendAndKeepsTheOthers) {
  CrashDisk disk(directory_ / "data", 1);
  {
    auto segments = Open(disk.env());
    auto before = segments->Append(Noise(10'000, 1));
    ASSERT_TRUE(before.ok()) << before.status();
    disk.SetRoom(5000);
    auto refused = segments->Append(Noise(10'000, 2));
    EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
    EXPECT_TRUE(absl::IsResourceExhausted(segments->Append(Noise(10'000, 3)).status()));
    disk.SetRoom(std::nullopt);
    auto after = segments->Append(Noise(10'000, 4));
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_NE(after->segment, before->segment) << "where the failed file ends is not known";
    EXPECT_TRUE(segments->Sync().ok());
    disk.Crash();
    EXPECT_EQ(Read(*segments, *before), Noise(10'000, 1));
    EXPECT_EQ(Read(*segments, *after), Noise(10'000, 4));
  }
}

TEST_F(SegmentsTest, SyncedBytesOutliveThePowerAndOthersMayNot) {
  uint64_t gone = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    fs::remove_all(directory_ / "data");
    fs::create_directory(directory_ / "data");
    CrashDisk disk(directory_ / "data", seed);
    auto segments = Open(disk.env());
    const Extent synced = *segments->Append(Noise(10'000, 1));
    ASSERT_TRUE(segments->Sync().ok());
    const Extent unsynced = *segments->Append(Noise(10'000, 2));
    disk.Crash();
    EXPECT_EQ(Read(*segments, synced), Noise(10'000, 1));
    gone += Read(*segments, unsynced) != Noise(10'000, 2);
  }
  EXPECT_GT(gone, 0u) << "the double lost nothing: this test tests nothing";
}

TEST_F(SegmentsTest, AFailedSyncIsFinalAndSealsNothing) {
  CrashDisk disk(directory_ / "data", 1);
  {
    auto segments = Open(disk.env());
    ASSERT_TRUE(segments->Append(Noise(10'000, 1)).ok());
    disk.FailSyncs(true);
    EXPECT_FALSE(segments->Sync().ok());
    disk.FailSyncs(false);
    EXPECT_FALSE(segments->Sync().ok()) << "what the first one took is in doubt for good";
    EXPECT_EQ(lost_, 1) << "said once";
  }
  EXPECT_THAT(Names(), testing::ElementsAre("0000000001.open"));
}

TEST_F(SegmentsTest, LinksAreASecondDirectoryOfWhatWasAppendedBefore) {
  auto segments = Open();
  const std::string content = Noise(100'000, 1);
  const Extent extent = *segments->Append(content);
  fs::create_directory(directory_ / "copy");
  ASSERT_TRUE(segments->LinkInto(directory_ / "copy/segments").ok());
  ASSERT_TRUE(segments->Append(Noise(100'000, 2)).ok());
  ASSERT_TRUE(segments->directory().Delete({extent.segment}).ok());
  EXPECT_THAT(Read(*segments, extent), HasSubstr("NOT_FOUND"));
  auto copy = SegmentDirectory::Open(directory_ / "copy/segments", rocksdb::Env::Default());
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ((*copy)->segments().size(), 1u);
  std::string found;
  EXPECT_TRUE((*copy)->Read(extent, found).ok());
  EXPECT_EQ(found, content);
}

TEST_F(SegmentsTest, ManyThreadsAppendReadAndSync) {
  auto segments = Open(rocksdb::Env::Default(), 200'000);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t n = 0; n < 50; ++n) {
        const std::string content = Noise(1 + n * 397, t * 1000 + n);
        auto extent = segments->Append(content);
        if (!extent.ok() || Read(*segments, *extent) != content) ++wrong;
        if (n % 7 == 0 && !segments->Sync().ok()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace msprobe::server
