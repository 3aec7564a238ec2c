#include "agent/core/private_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PrivateDirectoryTest : public ::testing::Test {
 protected:
  PrivateDirectoryTest() : root_(fs::temp_directory_path() / Cat("core-private-", getpid())) {
    fs::create_directories(root_);
    umask_ = umask(022);
  }
  ~PrivateDirectoryTest() override {
    umask(umask_);
    fs::remove_all(root_);
  }
  static mode_t ModeOf(const fs::path& path) {
    struct stat found {};
    return lstat(path.c_str(), &found) == 0 ? found.st_mode & 0777 : 0;
  }

  const fs::path root_;
  mode_t umask_ = 0;
};

TEST_F(PrivateDirectoryTest, IsOfThisUserAlone) {
  EXPECT_EQ(MakePrivateDirectory(root_ / "new"), absl::OkStatus());
  EXPECT_EQ(ModeOf(root_ / "new"), 0700);
  EXPECT_EQ(MakePrivateDirectory(root_ / "new"), absl::OkStatus());
  fs::create_directory(root_ / "open");
  fs::permissions(root_ / "open", fs::perms(0777));
  EXPECT_EQ(MakePrivateDirectory(root_ / "open"), absl::OkStatus());
  EXPECT_EQ(ModeOf(root_ / "open"), 0700);
}

TEST_F(PrivateDirectoryTest, WhatAnotherUserPlantedIsRefused) {
  fs::create_directory(root_ / "mine");
  fs::create_directory_symlink(root_ / "mine", root_ / "link");
  EXPECT_THAT(std::string(MakePrivateDirectory(root_ / "link").message()), HasSubstr("link is no directory"));
  EXPECT_THAT(std::string(MakePrivateDirectory(root_ / "no" / "parent").message()), HasSubstr("cannot make"));
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a directory of another user";
  ASSERT_EQ(chown((root_ / "mine").c_str(), 65534, 65534), 0);
  EXPECT_THAT(std::string(MakePrivateDirectory(root_ / "mine").message()), HasSubstr("mine belongs to user 65534"));
}

TEST_F(PrivateDirectoryTest, OnlyTheLastTwoAreClosed) {
  EXPECT_EQ(MakeClosedDirectories(root_ / "dump" / ".msprobe" / "spool"), absl::OkStatus());
  EXPECT_EQ(ModeOf(root_ / "dump"), 0755);
  EXPECT_EQ(ModeOf(root_ / "dump" / ".msprobe"), 0700);
  EXPECT_EQ(ModeOf(root_ / "dump" / ".msprobe" / "spool"), 0700);
}

}  // namespace
}  // namespace msprobe::core
