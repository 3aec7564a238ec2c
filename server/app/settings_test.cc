#include "server/app/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

using testing::HasSubstr;

TEST(ParseSettings, TakesNamesAndValues) {
  auto settings =
      ParseSettings("# a comment\n\nlisten = 0.0.0.0:50051\n  data_dir=\"/var/lib/my probe\"  \nwatch = a=*:max\n");
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_EQ(settings->size(), 3u);
  EXPECT_EQ((*settings)[0].name, "listen");
  EXPECT_EQ((*settings)[0].value, "0.0.0.0:50051");
  EXPECT_EQ((*settings)[0].line, 3);
  EXPECT_EQ((*settings)[1].value, "/var/lib/my probe");
  EXPECT_EQ((*settings)[2].value, "a=*:max") << "a value may hold =";
}

TEST(ParseSettings, SaysWhichLineIsWrong) {
  EXPECT_THAT(ParseSettings("listen = a\nlisten\n").status().message(),
              HasSubstr("line 2: \"listen\" is not of the form"));
  EXPECT_THAT(ParseSettings("= 3").status().message(), HasSubstr("line 1"));
  EXPECT_THAT(ParseSettings("a = 1\n\na = 2").status().message(), HasSubstr("line 3: a stands twice"));
}

TEST(Settings, OnlyWhatIsSafeIsReloadable) {
  EXPECT_TRUE(Settings::IsReloadable("retain_days"));
  EXPECT_TRUE(Settings::IsReloadable("log_level"));
  for (const char* name : {"listen", "data_dir", "durability", "tokens", "memory_limit"}) {
    EXPECT_FALSE(Settings::IsReloadable(name)) << name;
  }
}

}  // namespace
}  // namespace msprobe::server
