#include "agent/core/server_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace msprobe::core {
namespace {

using testing::HasSubstr;

class ServerAccessTest : public testing::Test {
 protected:
  ServerAccessTest() { std::filesystem::create_directories(directory_); }
  ~ServerAccessTest() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& content) {
    std::ofstream(directory_ + "/" + name) << content;
    return directory_ + "/" + name;
  }

  const std::string directory_ = testing::TempDir() + "/server_access_" + std::to_string(getpid());
};

TEST_F(ServerAccessTest, NothingGivenIsPlainAndWithoutAToken) {
  const auto access = ReadServerAccess("{}");
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->Open()->token, "");
  EXPECT_NE(access->Open()->credentials, nullptr);
}

TEST_F(ServerAccessTest, TheTokenIsReadAtEveryConnection) {
  const std::string path = Write("token", "first\n");
  const auto access = ReadServerAccess(R"({"server_token_file": ")" + path + "\"}");
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->Open()->token, "first");
  Write("token", "second\n");
  EXPECT_EQ(access->Open()->token, "second");
}

TEST_F(ServerAccessTest, TheEnvironmentStandsInForAFieldThatIsMissing) {
  setenv("MSPROBE_SERVER_TOKEN_FILE", Write("of_environment", "there").c_str(), 1);
  EXPECT_EQ(ReadServerAccess("")->Open()->token, "there");
  EXPECT_EQ(ReadServerAccess(R"({"server_token_file": ")" + Write("of_file", "here") + "\"}")->Open()->token, "here");
  unsetenv("MSPROBE_SERVER_TOKEN_FILE");
}

TEST_F(ServerAccessTest, RefusesWhatCannotWorkAndNamesIt) {
  const std::string pem = Write("pem", "-----BEGIN CERTIFICATE-----"), text = Write("text", "hello");
  const auto refusal = [](const std::string& json) { return ReadServerAccess(json).status().ToString(); };
  EXPECT_THAT(refusal(R"({"server_token_file": 3})"), HasSubstr("server_token_file"));
  EXPECT_THAT(refusal(R"({"server_token_file": "/nowhere"})"), HasSubstr("\"/nowhere\" cannot be read"));
  EXPECT_THAT(refusal(R"({"server_token_file": ")" + Write("empty", " \n") + "\"}"), HasSubstr("is empty"));
  EXPECT_THAT(refusal(R"({"server_ca": ")" + text + "\"}"), HasSubstr("server_ca is invalid"));
  EXPECT_THAT(refusal(R"({"server_cert": ")" + pem + "\"}"), HasSubstr("go together"));
  EXPECT_THAT(refusal(R"({"server_cert": ")" + pem + R"(", "server_key": ")" + pem + "\"}"), HasSubstr("server_ca"));
}

}  // namespace
}  // namespace msprobe::core
