#include "agent/core/config/name_pattern.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

bool Matches(std::string_view pattern, std::string_view name) { return NamePattern::Parse(pattern)->Matches(name); }

TEST(NamePatternTest, PlainTextIsASubstring) {
  EXPECT_TRUE(Matches("linear", "Functional.linear.0.forward"));
  EXPECT_TRUE(Matches("", "Functional.linear.0.forward"));
  EXPECT_FALSE(Matches("Linear", "Functional.linear.0.forward"));
  EXPECT_FALSE(Matches("l.near", "Functional.linear.0.forward"));
}

TEST(NamePatternTest, ARegularExpressionIsLookedForAnywhere) {
  EXPECT_TRUE(Matches("name-regex(l.near)", "Functional.linear.0.forward"));
  EXPECT_TRUE(Matches(R"(name-regex(^Functional\.(linear|relu)\.[02]\.))", "Functional.relu.2.forward"));
  EXPECT_FALSE(Matches(R"(name-regex(^Functional\.(linear|relu)\.[02]\.))", "Functional.relu.1.forward"));
  EXPECT_FALSE(Matches("name-regex(^linear)", "Functional.linear.0.forward"));
  EXPECT_TRUE(Matches("name-regex(backward$)", "Functional.linear.0.backward"));
}

TEST(NamePatternTest, AWrongExpressionIsRefusedByName) {
  const auto message = [](std::string_view text) { return std::string(NamePattern::Parse(text).status().message()); };
  EXPECT_THAT(message("name-regex((a)"), ::testing::AllOf(::testing::HasSubstr("name-regex((a)"),
                                                          ::testing::HasSubstr("regular expression is wrong")));
  EXPECT_THAT(message("name-regex(a"), ::testing::HasSubstr("no closing bracket"));
}

}  // namespace
}  // namespace msprobe::core
