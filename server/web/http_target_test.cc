#include "server/web/http_target.h"

#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

using Query = std::map<std::string, std::string>;

TEST(HttpTargetTest, PathAndQueryAreDecoded) {
  const auto target = ParseTarget("/a%2Fb+c/d?x=1%20%2B&x=2&y=&z&&w=a+b%3D=c");
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->path, "/a/b+c/d");
  EXPECT_EQ(target->query, (Query{{"x", "1 +"}, {"y", ""}, {"z", ""}, {"w", "a b==c"}}));
  EXPECT_EQ(ParseTarget("/?")->query, Query());
}

TEST(HttpTargetTest, WhatIsNotAnAddressOfThisServerIsNone) {
  for (const char* text :
       {"", "*", "evil.example:80", "http://evil.example/", "/%", "/%4", "/%zz", "/?x=%", "/?%=1", "/%+4", "/%-1"}) {
    EXPECT_FALSE(ParseTarget(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace msprobe::server
