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

}  // namespace
}  // namespace msprobe::core
