#include "agent/core/utf8.h"

#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

TEST(Utf8Test, LeavesWellFormedTextAlone) {
  for (const char* text : {"", "plain", "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xEF\xBF\xBF"}) {
    EXPECT_EQ(ToUtf8(text), text);
  }
}

TEST(Utf8Test, ReplacesEveryByteThatIsMalformed) {
  const std::string r = kReplacement;
  EXPECT_EQ(ToUtf8("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(ToUtf8("\x80"), r);
  EXPECT_EQ(ToUtf8("\xC3"), r);                          // cut off
  EXPECT_EQ(ToUtf8("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(ToUtf8("\xE0\x80\x80"), r + r + r);          // overlong
  EXPECT_EQ(ToUtf8("\xED\xB2\x80"), r + r + r);          // a surrogate, as Python's surrogateescape leaves it
  EXPECT_EQ(ToUtf8("\xF4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
  EXPECT_EQ(ToUtf8("\xC3\xA9\xE4\xB8"), "\xC3\xA9" + r + r);
}

TEST(Visible, WhatIsReadStaysAsItIs) {
  for (const char* text :
       {"", "run 7", "läuft über 3 %", "\xe6\xa8\xa1\xe5\x9e\x8b", "\xf0\x9f\x98\x80", "a\\b \"c\""}) {
    EXPECT_EQ(Visible(text), text);
  }
}

TEST(Visible, WhatMovesTheCursorOrBeginsALineIsNamed) {
  EXPECT_EQ(Visible("a\nb\tc\rd"), "a\\nb\\tc\\x0dd");
  EXPECT_EQ(Visible("\x1b[31mred\x1b]0;title\x07"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(Visible(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(Visible("\xc2\x9b"
                    "31m"),
            "\\x9b31m")
      << "an escape of one character";
  EXPECT_EQ(Visible("\xe2\x80\xa8|\xe2\x80\xae|\xe2\x81\xa6"), "\\u2028|\\u202e|\\u2066");
}

TEST(Visible, BytesThatAreNotUtf8AreNamed) {
  EXPECT_EQ(Visible("\x9b"
                    "31m"),
            "\\x9b31m");
  EXPECT_EQ(Visible("a\xc3"), "a\\xc3");
  EXPECT_EQ(Visible("\xe2\x28\xa1"), "\\xe2(\\xa1");
  EXPECT_EQ(Visible("\xff\xc0\x80"), "\\xff\\xc0\\x80");
}

}  // namespace
}  // namespace msprobe::core
