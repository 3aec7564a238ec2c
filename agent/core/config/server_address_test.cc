#include "agent/core/config/server_address.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

TEST(ServerAddressTest, TakesTheThreeForms) {
  for (const char* address : {"localhost:50051", "10.0.0.1:1", "a-b.c_d:65535", "[::1]:50051", "[fe80::1%eth0]:5",
                              "unix:/run/msprobe.sock"}) {
    EXPECT_TRUE(ParseServerAddress(address).ok()) << address;
  }
}

TEST(ServerAddressTest, RefusesTheRestAndSaysWhatIsAllowed) {
  for (const char* address :
       {"", "host", "host:", ":50051", "host:0", "host:65536", "host:5x", "host:-5", "::1:50051", "[::1]", "[::1]50051",
        "[nope]:5", "[::1:5", "http://host:5", "ho st:5", "unix:", "unix:relative", "host:50051/path"}) {
    const absl::Status status = ParseServerAddress(address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(std::string("\"") + address + "\""));
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("it should be \"host:port\""));
  }
  EXPECT_FALSE(ParseServerAddress("unix:/" + std::string(107, 'x')).ok());
  EXPECT_TRUE(ParseServerAddress("unix:/" + std::string(106, 'x')).ok());
}

TEST(ServerAddressTest, TellsThisMachineFromAnyOther) {
  for (const char* here : {"unix:/run/s", "localhost:1", "LOCALHOST:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1",
                           "[0:0:0:0:0:0:0:1]:1", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(IsOfThisMachine(here)) << here;
  }
  for (const char* elsewhere : {"127.attacker.example:1", "127.0.0.1.evil:1", "127.1:1", "0177.0.0.1:1", "2130706433:1",
                                "localhost.:1", "localhost.evil:1", "0.0.0.0:1", "10.0.0.1:1", "gpu-host:1", "[::]:1",
                                "[::2]:1", "[fe80::1%eth0]:1", "[::ffff:10.0.0.1]:1"}) {
    EXPECT_FALSE(IsOfThisMachine(elsewhere)) << elsewhere;
  }
}

TEST(ServerAddressTest, TakesSeveral) {
  const auto both = ParseServerAddresses("a:1, unix:/run/s");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT(*both, ::testing::ElementsAre("a:1", "unix:/run/s"));
  for (const char* wrong : {"", ",", "a:1,", "a:1,b"}) {
    EXPECT_EQ(ParseServerAddresses(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace msprobe::core
