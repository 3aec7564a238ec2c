#include "agent/core/git_checkout.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace msprobe::core {
namespace {

namespace fs = std::filesystem;

class GitCheckoutTest : public testing::Test {
 protected:
  GitCheckoutTest() { fs::remove_all(top_); }
  ~GitCheckoutTest() override { fs::remove_all(top_); }

  void Write(const fs::path& file, const std::string& text) {
    fs::create_directories((top_ / file).parent_path());
    std::ofstream(top_ / file) << text;
  }

  // "COMMIT BRANCH"; "none".
  std::string Around(const fs::path& path) const {
    const auto found = CheckoutAround((top_ / path).string());
    return found ? found->commit + " " + found->branch : "none";
  }

  const fs::path top_ = fs::path(testing::TempDir()) / "git_checkout";
  const std::string one_ = std::string(40, 'a'), other_ = std::string(64, '7');
};

TEST_F(GitCheckoutTest, TellsTheBranchAndItsCommit) {
  Write(".git/HEAD", "ref: refs/heads/fix/loss\n");
  Write(".git/refs/heads/fix/loss", one_ + "\n");
  Write(".git/packed-refs", "# pack-refs with: peeled\n" + other_ + " refs/heads/fix/loss\n");
  EXPECT_EQ(Around("jobs/not/there/train.py"), one_ + " fix/loss");
}

TEST_F(GitCheckoutTest, ReadsPackedRefs) {
  Write(".git/HEAD", "ref: refs/heads/main\n");
  Write(".git/packed-refs", one_ + " refs/heads/not-main\n" + other_ + " refs/heads/main\n^" + one_ + "\n");
  EXPECT_EQ(Around("train.py"), other_ + " main");
}

TEST_F(GitCheckoutTest, ADetachedHeadHasNoBranch) {
  Write(".git/HEAD", one_ + "\n");
  EXPECT_EQ(Around("train.py"), one_ + " ");
}

TEST_F(GitCheckoutTest, ALinkedWorktreeHasItsOwnHeadAndTheMainOnesRefs) {
  Write("main/.git/worktrees/w/HEAD", "ref: refs/heads/w\n");
  Write("main/.git/worktrees/w/commondir", "../..\n");
  Write("main/.git/refs/heads/w", one_ + "\n");
  Write("w/.git", "gitdir: ../main/.git/worktrees/w\n");
  EXPECT_EQ(Around("w/train.py"), one_ + " w");
}

TEST_F(GitCheckoutTest, WhatIsNoCheckoutTellsNothing) {
  Write(".git/HEAD", "ref: refs/heads/main\n");  // without a commit so far
  EXPECT_EQ(Around("train.py"), "none");
  Write(".git/HEAD", "\xff\xff");
  EXPECT_EQ(Around("train.py"), "none");
  Write(".git/HEAD", "ref: refs/heads/main\n");
  Write(".git/refs/heads/main", "zz\n");
  EXPECT_EQ(Around("train.py"), "none");
}

TEST_F(GitCheckoutTest, WhatNeverEndsIsNotRead) {
  fs::create_directories(top_ / "jobs");
  ASSERT_EQ(mkfifo((top_ / ".git").c_str(), 0600), 0);
  EXPECT_EQ(Around("jobs/train.py"), "none");
  fs::remove(top_ / ".git");
  Write(".git/HEAD", "ref: refs/heads/main\n");
  fs::create_symlink("/dev/zero", top_ / ".git/packed-refs");
  EXPECT_EQ(Around("jobs/train.py"), "none");
}

TEST_F(GitCheckoutTest, ASecretInTheBranchIsNotTold) {
  Write(".git/HEAD", "ref: refs/heads/api_key=hush\n");
  Write(".git/refs/heads/api_key=hush", one_ + "\n");
  EXPECT_EQ(Around("train.py"), one_ + " ");
}

}  // namespace
}  // namespace msprobe::core
