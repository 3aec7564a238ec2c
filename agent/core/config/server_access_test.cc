#include "agent/core/config/server_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace msprobe::core {
namespace {

using testing::AllOf;
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

constexpr char kSocket[] = "unix:/run/s";

absl::StatusOr<ServerAccess> Read(const std::string& json, const std::string& target = kSocket) {
  return ReadServerAccess(json, std::vector<std::string>{target});
}

TEST_F(ServerAccessTest, NothingGivenIsPlainAndWithoutAToken) {
  const auto access = Read("{}");
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->Open(kSocket)->token, "");
  EXPECT_NE(access->Open(kSocket)->credentials, nullptr);
}

TEST_F(ServerAccessTest, TheTokenIsReadAtEveryConnection) {
  const std::string path = Write("token", "first\n");
  const auto access = Read(R"({"server_token_file": ")" + path + "\"}");
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->Open(kSocket)->token, "first");
  Write("token", "second\n");
  EXPECT_EQ(access->Open(kSocket)->token, "second");
}

TEST_F(ServerAccessTest, TheEnvironmentStandsInForAFieldThatIsMissing) {
  setenv("MSPROBE_SERVER_TOKEN_FILE", Write("of_environment", "there").c_str(), 1);
  EXPECT_EQ(Read("")->Open(kSocket)->token, "there");
  EXPECT_EQ(Read(R"({"server_token_file": ")" + Write("of_file", "here") + "\"}")->Open(kSocket)->token, "here");
  unsetenv("MSPROBE_SERVER_TOKEN_FILE");
}

TEST_F(ServerAccessTest, AnEmptyVariableIsNone) {
  setenv("MSPROBE_SERVER_CA", "", 1);
  EXPECT_EQ(Read("")->ca, "");
  unsetenv("MSPROBE_SERVER_CA");
}

TEST_F(ServerAccessTest, ATokenLeavesThisMachineUnderTlsAlone) {
  const std::string token = R"({"server_token_file": ")" + Write("token", "secret") + '"';
  for (const char* target : {"unix:/run/s", "localhost:50051", "LocalHost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1",
                             "[::ffff:127.0.0.1]:1"}) {
    EXPECT_EQ(Read(token + "}", target)->Open(target)->token, "secret") << target;
  }
  for (const char* target : {"gpu-host:50051", "127.attacker.example:1", "127.0.0.1.evil:1", "127.1:1", "0.0.0.0:1",
                             "10.0.0.1:1", "[::2]:1", "[::ffff:10.0.0.1]:1", "localhost.:1"}) {
    const std::string said = Read(token + "}", target).status().ToString();
    EXPECT_THAT(said, AllOf(HasSubstr(target), HasSubstr("give server_ca"))) << target;
    // Also where a server sends a rank elsewhere.
    EXPECT_FALSE(Read(token + "}")->Open(target).ok()) << target;
  }
  EXPECT_TRUE(Read(token + R"(, "server_ca": "system"})", "gpu-host:50051").ok());
  EXPECT_TRUE(Read("{}", "gpu-host:50051").ok());
}

TEST_F(ServerAccessTest, RefusesWhatCannotWorkAndNamesIt) {
  const std::string pem = Write("pem", "-----BEGIN CERTIFICATE-----"), text = Write("text", "hello");
  const auto refusal = [](const std::string& json) { return Read(json).status().ToString(); };
  EXPECT_THAT(refusal(R"({"server_token_file": 3})"), HasSubstr("server_token_file"));
  EXPECT_THAT(refusal(R"({"server_token_file": "/nowhere"})"), HasSubstr("\"/nowhere\" cannot be read"));
  EXPECT_THAT(refusal(R"({"server_token_file": ")" + Write("empty", " \n") + "\"}"), HasSubstr("is empty"));
  EXPECT_THAT(refusal(R"({"server_ca": ")" + text + "\"}"), HasSubstr("server_ca is invalid"));
  EXPECT_THAT(refusal(R"({"server_cert": ")" + pem + "\"}"), HasSubstr("go together"));
  EXPECT_THAT(refusal(R"({"server_cert": ")" + pem + R"(", "server_key": ")" + pem + "\"}"), HasSubstr("server_ca"));
}

}  // namespace
}  // namespace msprobe::core
