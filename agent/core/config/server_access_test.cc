#include "agent/core/config/server_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

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

absl::Status Check(const ServerAccess& access, const std::string& target = kSocket) {
  return access.Check(std::vector<std::string>{target});
}

TEST_F(ServerAccessTest, NothingGivenIsPlainAndWithoutAToken) {
  const ServerAccess access;
  EXPECT_TRUE(Check(access).ok());
  EXPECT_EQ(access.Open(kSocket)->token, "");
  EXPECT_NE(access.Open(kSocket)->credentials, nullptr);
}

TEST_F(ServerAccessTest, TheTokenIsReadAtEveryConnection) {
  const ServerAccess access = {.token_file = Write("token", "first\n")};
  EXPECT_EQ(access.Open(kSocket)->token, "first");
  Write("token", "second\n");
  EXPECT_EQ(access.Open(kSocket)->token, "second");
}

TEST_F(ServerAccessTest, ATokenLeavesThisMachineUnderTlsAlone) {
  const ServerAccess access = {.token_file = Write("token", "secret")};
  for (const char* target : {"unix:/run/s", "localhost:50051", "LocalHost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1",
                             "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(Check(access, target).ok()) << target;
    EXPECT_EQ(access.Open(target)->token, "secret") << target;
  }
  for (const char* target : {"gpu-host:50051", "127.attacker.example:1", "127.0.0.1.evil:1", "127.1:1", "0.0.0.0:1",
                             "10.0.0.1:1", "[::2]:1", "[::ffff:10.0.0.1]:1", "localhost.:1"}) {
    EXPECT_THAT(Check(access, target).ToString(), AllOf(HasSubstr(target), HasSubstr("give server_ca"))) << target;
    // Also where a server sends a rank elsewhere.
    EXPECT_FALSE(access.Open(target).ok()) << target;
  }
  EXPECT_TRUE(Check({.ca = "system", .token_file = access.token_file}, "gpu-host:50051").ok());
  EXPECT_TRUE(Check({}, "gpu-host:50051").ok());
}

TEST_F(ServerAccessTest, RefusesWhatCannotWorkAndNamesIt) {
  const std::string pem = Write("pem", "-----BEGIN CERTIFICATE-----"), text = Write("text", "hello");
  const auto refusal = [](const ServerAccess& access) { return Check(access).ToString(); };
  EXPECT_THAT(refusal({.token_file = "/nowhere"}), HasSubstr("\"/nowhere\" cannot be read"));
  EXPECT_THAT(refusal({.token_file = Write("empty", " \n")}), HasSubstr("is empty"));
  EXPECT_THAT(refusal({.ca = text}), HasSubstr("server_ca is invalid"));
  EXPECT_THAT(refusal({.cert = pem}), HasSubstr("go together"));
  EXPECT_THAT(refusal({.cert = pem, .key = pem}), HasSubstr("server_ca"));
}

}  // namespace
}  // namespace msprobe::core
