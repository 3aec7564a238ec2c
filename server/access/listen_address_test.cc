#include "server/access/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

using testing::HasSubstr;

bool LeadsHere(std::string_view text) {
  const std::optional<HostPort> host = ParseHostPort(text);
  return host.has_value() && IsLoopback(*host);
}

TEST(ListenAddressTest, LiteralsOfLoopbackAndLocalhostAreThisMachine) {
  for (const char* text :
       {"127.0.0.1", "127.0.0.1:8080", "127.255.255.254:1", "localhost", "LocalHost:8080", "LOCALHOST", "[::1]:8080",
        "[::1]", "[0:0:0:0:0:0:0:1]:8080", "[::ffff:127.0.0.1]:8080", "[::ffff:7f00:1]"}) {
    EXPECT_TRUE(LeadsHere(text)) << text;
  }
}

TEST(ListenAddressTest, NoOtherNameIs) {
  for (const char* text : {"127.attacker.example",
                           "127.attacker.example:80",
                           "127.0.0.1.evil",
                           "127.0.0.1.evil:8080",
                           "127.1",
                           "127.1:80",
                           "0177.0.0.1",
                           "0x7f.0.0.1",
                           "2130706433",
                           "127.0.0.1.",
                           "localhost.",
                           "localhost.evil:80",
                           "evil.localhost",
                           "0.0.0.0",
                           "0.0.0.0:80",
                           "128.0.0.1",
                           "[::]:80",
                           "[::2]",
                           "[::127.0.0.1]",
                           "[::1%lo]",
                           "[::ffff:128.0.0.1]:80",
                           "user@localhost",
                           "user@127.0.0.1:80",
                           "127.0.0.1@evil:80",
                           "127.0.0.1:80@evil",
                           "localhost:80:80",
                           "localhost:",
                           "localhost:x",
                           "localhost:65536",
                           "localhost:+80",
                           "localhost: 80",
                           "localhost/evil",
                           "local host",
                           "[::1",
                           "::1",
                           "[::1]evil",
                           "[127.0.0.1]:80",
                           "[localhost]",
                           "",
                           ":80",
                           "localhost\t",
                           "localhost\n:80",
                           "127.0.0.1\x01:80"}) {
    EXPECT_FALSE(LeadsHere(text)) << text;
  }
}

TEST(ListenAddressTest, AnAddressToListenOnIsTakenApart) {
  const auto addresses = ParseListen("127.0.0.1:0,[::1]:50051,unix:/run/s,0.0.0.0:80");
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  ASSERT_EQ(addresses->size(), 4);
  EXPECT_TRUE((*addresses)[0].loopback);
  EXPECT_EQ((*addresses)[1].host, "::1");
  EXPECT_EQ((*addresses)[1].port, 50051);
  EXPECT_TRUE((*addresses)[2].loopback);
  EXPECT_EQ((*addresses)[2].unix_path, "/run/s");
  EXPECT_FALSE((*addresses)[3].loopback);
}

TEST(ListenAddressTest, WhatIsNoAddressIsRefusedWithWhatWouldBe) {
  for (const char* text : {"", "50051", ":50051", "host", "host:", "host:65536", "::1:50051", "user@host:80"}) {
    const std::string said = ParseListen(text).status().ToString();
    EXPECT_THAT(said, HasSubstr("is not host:port with a port of 0 to 65535")) << text;
    EXPECT_THAT(ParseListenTcp("web_listen", text).status().ToString(), HasSubstr("--web_listen=")) << text;
  }
  EXPECT_FALSE(ParseListenTcp("web_listen", "unix:/run/s").ok());
  EXPECT_FALSE(ParseListenTcp("web_listen", "localhost:1,localhost:2").ok());
}

}  // namespace
}  // namespace msprobe::server
