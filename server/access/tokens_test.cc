#include "server/access/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

class TokensTest : public testing::Test {
 protected:
  std::string Write(const std::string& text) {
    std::string path = scratch_.path() + "/tokens";
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
    return path;
  }

  ScratchDirectory scratch_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(TokensTest, ATokenHasTheRolesOfItsLine) {
  auto tokens =
      Tokens::Load(Write("# who may\n\nread dashboard aaaaaaaaaaaaaaaa\nwrite,read job bbbbbbbbbbbbbbbb\n"
                         "admin  boss\tcccccccccccccccc\n"));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  auto dashboard = (*tokens)->Find("aaaaaaaaaaaaaaaa");
  ASSERT_TRUE(dashboard.ok());
  EXPECT_EQ(dashboard->name, "dashboard");
  EXPECT_TRUE(dashboard->Has(Role::kRead));
  EXPECT_FALSE(dashboard->Has(Role::kWrite));
  auto job = (*tokens)->Find("bbbbbbbbbbbbbbbb");
  EXPECT_TRUE(job->Has(Role::kWrite) && job->Has(Role::kRead));
  EXPECT_FALSE(job->Has(Role::kAdmin));
  EXPECT_TRUE((*tokens)->Find("cccccccccccccccc")->Has(Role::kControl));
  for (const char* strange : {"", "a", "aaaaaaaaaaaaaaab", "aaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    EXPECT_FALSE((*tokens)->Find(strange).ok()) << strange;
  }
}

TEST_F(TokensTest, RefusesWhatIsNoTokenFileAndSaysWhere) {
  for (const auto& [text, why] : {std::pair("read a\n", "line 1: it has 2 words"),
                                  {"\nroot a aaaaaaaaaaaaaaaa\n", "line 2: \"root\" is not a role"},
                                  {"read a short\n", "has 5 bytes"},
                                  {"read a aaaaaaaaaaaaaaaa\nread b aaaaaaaaaaaaaaaa\n", "in an earlier line"}}) {
    EXPECT_THAT(Tokens::Load(Write(text)).status().ToString(), HasSubstr(why));
  }
  EXPECT_THAT(Tokens::Load("/nowhere/tokens").status().ToString(), HasSubstr("cannot be read"));
}

TEST_F(TokensTest, AClockThatIsSetBackKeepsNoTokenInForce) {
  auto tokens = Tokens::Load(Write("read a aaaaaaaaaaaaaaaa\n"), [this] { return now_; });
  ASSERT_TRUE(tokens.ok());
  now_ += absl::Hours(1);
  EXPECT_TRUE((*tokens)->Find("aaaaaaaaaaaaaaaa").ok());
  now_ -= absl::Hours(1);
  Write("read a bbbbbbbbbbbbbbbb\n");
  EXPECT_FALSE((*tokens)->Find("aaaaaaaaaaaaaaaa").ok());
  EXPECT_TRUE((*tokens)->Find("bbbbbbbbbbbbbbbb").ok());
}

TEST_F(TokensTest, SaysWhenTheFileIsOpenedToOthers) {
  const std::string path = Write("read a aaaaaaaaaaaaaaaa\n");
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  auto tokens = Tokens::Load(path, [this] { return now_; });
  ASSERT_TRUE(tokens.ok());
  std::filesystem::permissions(path, std::filesystem::perms(0666));
  now_ += absl::Seconds(2);
  testing::internal::CaptureStdout();  // tests log there
  EXPECT_TRUE((*tokens)->Find("aaaaaaaaaaaaaaaa").ok());
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("open to every user of this machine"));
}

TEST_F(TokensTest, FollowsTheFileAndKeepsTheLastThatWasRight) {
  auto tokens = Tokens::Load(Write("read a aaaaaaaaaaaaaaaa\n"), [this] { return now_; });
  ASSERT_TRUE(tokens.ok());
  EXPECT_TRUE((*tokens)->Find("aaaaaaaaaaaaaaaa").ok());
  Write("read a bbbbbbbbbbbbbbbb\n");
  EXPECT_FALSE((*tokens)->Find("bbbbbbbbbbbbbbbb").ok()) << "looked at within a second";
  now_ += absl::Seconds(1);
  EXPECT_TRUE((*tokens)->Find("bbbbbbbbbbbbbbbb").ok());
  EXPECT_FALSE((*tokens)->Find("aaaaaaaaaaaaaaaa").ok());
  Write("nonsense\n");
  now_ += absl::Seconds(1);
  EXPECT_TRUE((*tokens)->Find("bbbbbbbbbbbbbbbb").ok());
}

}  // namespace
}  // namespace msprobe::server
