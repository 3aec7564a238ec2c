#include "server/store/disk/private_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

mode_t ModeOf(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

class PrivateFilesTest : public testing::Test {
 protected:
  // A data directory as a plain umask makes it.
  fs::path Open(const std::string& name) {
    fs::path data = fs::path(std::string(directory_ / name));
    fs::create_directories(data / "store");
    for (const char* file : {"store/CURRENT", "msprobe-server.lock"}) {
      std::ofstream(data / file) << "x";
      chmod((data / file).c_str(), 0644);
    }
    for (const fs::path& path : {data, data / "store"}) chmod(path.c_str(), 0755);
    return data;
  }
  ScratchDirectory directory_;
};

TEST_F(PrivateFilesTest, ADataDirectoryIsClosedOnceWithAllInIt) {
  const fs::path data = Open("data");
  EXPECT_EQ(CloseToOthers(data), 4u);
  EXPECT_EQ(ModeOf(data), 0700u);
  EXPECT_EQ(ModeOf(data / "store"), 0700u);
  EXPECT_EQ(ModeOf(data / "store" / "CURRENT"), 0600u);
  EXPECT_EQ(CloseToOthers(data), 0u);
}

TEST_F(PrivateFilesTest, ThroughALinkToo) {
  const fs::path data = Open("data");
  fs::create_directory_symlink(data, std::string(directory_ / "link"));
  EXPECT_EQ(CloseToOthers(directory_ / "link"), 4u);
  EXPECT_EQ(ModeOf(data), 0700u);
}

TEST_F(PrivateFilesTest, WhatIsNotOursStaysAsItIs) {
  const fs::path data = Open("home");
  std::ofstream(data / "letter") << "x";
  chmod((data / "letter").c_str(), 0644);
  fs::create_directory_symlink(data / "letter", data / "store" / "link");
  EXPECT_EQ(CloseToOthers(data), 3u);
  EXPECT_EQ(ModeOf(data), 0755u);
  EXPECT_EQ(ModeOf(data / "letter"), 0644u);
  EXPECT_EQ(ModeOf(data / "store"), 0700u);
}

}  // namespace
}  // namespace msprobe::server
