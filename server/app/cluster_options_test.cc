#include "server/app/cluster_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Refusal(const ClusterFlags& flags, const SecurityOptions& security = {}, bool embedded = false) {
  return std::string(ClusterOf(flags, security, embedded, "elsewhere").status().message());
}

TEST(ClusterOptionsTest, WithoutShardsAServerIsAlone) {
  auto options = ClusterOf({}, {}, true, "host");
  ASSERT_TRUE(options.ok());
  EXPECT_TRUE(options->shards.empty());
  EXPECT_THAT(Refusal({.this_shard = "a:1"}), HasSubstr("--this_shard=a:1 needs --shards"));
  EXPECT_THAT(Refusal({.shard_ca = "x.pem"}), HasSubstr("--shard_ca=x.pem needs --shards"));
}

TEST(ClusterOptionsTest, AServerIsOneOfTheCluster) {
  EXPECT_EQ(ClusterOf({.shards = "a:1,b:1", .this_shard = "b:1"}, {}, false, "host")->this_shard, "b:1");
  EXPECT_THAT(Refusal({.shards = "a:1,b:1", .this_shard = "c:1"}),
              HasSubstr("is none of --shards, which are a:1, b:1"));
  EXPECT_THAT(Refusal({.shards = "a:1,b:1", .this_shard = "b:1"}, {}, true), HasSubstr("not for --embedded"));
  EXPECT_THAT(Refusal({.shards = "a,b:1"}), HasSubstr("--shards=a,b:1 is not valid: \"a\" is no address"));
}

TEST(ClusterOptionsTest, AHostNameMaySayWhichOne) {
  const ClusterFlags flags{.shards = "m-0.m.ns.svc:50051,m-1.m.ns.svc:50051,m-10.m.ns.svc:50051"};
  EXPECT_EQ(ClusterOf(flags, {}, false, "m-1")->this_shard, "m-1.m.ns.svc:50051");
  EXPECT_THAT(Refusal(flags), HasSubstr("the name of this host, elsewhere, does not say which"));
}

TEST(ClusterOptionsTest, ServersShowEachOtherWhatTheyAskFor) {
  ScratchDirectory directory;
  std::ofstream(directory / "token") << "t";
  std::ofstream(directory / "ca") << "c";
  ClusterFlags flags{.shards = "a:1,b:1", .this_shard = "a:1"};
  SecurityOptions tokens, tls;
  tokens.tokens = "tokens";
  tls.tls_cert = "c";
  tls.tls_key = "k";
  EXPECT_THAT(Refusal(flags, tokens), HasSubstr("--shard_token_file= is missing"));
  EXPECT_THAT(Refusal(flags, tls), HasSubstr("--shard_ca= is missing"));
  flags.shard_token_file = directory / "token";
  SecurityOptions both = tls;
  both.tls_client_ca = "ca";
  both.tokens = "tokens";
  auto mutual = ClusterOf(flags, both, false, "");
  ASSERT_TRUE(mutual.ok()) << mutual.status();
  EXPECT_EQ(mutual->ca, "ca");
  EXPECT_EQ(mutual->cert, "c");
  EXPECT_EQ(mutual->token_file, directory / "token");
  flags.shard_ca = directory / "nowhere";
  EXPECT_THAT(Refusal(flags), HasSubstr("cannot be read"));
}

TEST(ClusterOptionsTest, ATokenGoesToAnotherMachineUnderTlsAlone) {
  ScratchDirectory directory;
  std::ofstream(directory / "token") << "t";
  std::ofstream(directory / "ca") << "c";
  const auto of = [&](const std::string& other) {
    ClusterFlags flags{.shards = "a:1," + other, .this_shard = "a:1"};
    flags.shard_token_file = directory / "token";
    return flags;
  };
  for (const char* elsewhere : {"b:1", "127.evil.example:1", "10.0.0.1:1"}) {
    EXPECT_THAT(Refusal(of(elsewhere)), AllOf(HasSubstr(std::string(" would go to ") + elsewhere + " readable by all"),
                                              HasSubstr("give --tls_cert")));
  }
  for (const char* here : {"localhost:1", "127.0.0.1:2", "unix:/run/s"}) {
    EXPECT_TRUE(ClusterOf(of(here), {}, false, "").ok()) << here;
  }
  ClusterFlags secure = of("b:1");
  secure.shard_ca = directory / "ca";
  EXPECT_TRUE(ClusterOf(secure, {}, false, "").ok());
}

TEST(ClusterOptionsTest, TheEnvironmentStandsIn) {
  setenv("MSPROBE_SHARDS", "a:1,b:1", 1);
  setenv("MSPROBE_THIS_SHARD", "a:1", 1);
  ClusterFlags flags{.this_shard = "b:1"};
  AddEnvironment(flags);
  unsetenv("MSPROBE_SHARDS");
  unsetenv("MSPROBE_THIS_SHARD");
  EXPECT_EQ(flags.shards, "a:1,b:1");
  EXPECT_EQ(flags.this_shard, "b:1") << "a flag counts more";
}

}  // namespace
}  // namespace msprobe::server
