#include "agent/core/shell_word.h"

#include <gtest/gtest.h>

namespace msprobe::core {
namespace {

TEST(ShellWordTest, IsQuotedWhereAShellWouldTakeItApart) {
  for (const char* plain : {"run-1", "unix:/run/a_b.sock", "host:50051,10.0.0.7:50051"}) {
    EXPECT_EQ(ShellWord(plain), plain);
  }
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("my run"), "'my run'");
  EXPECT_EQ(ShellWord("~/dump"), "'~/dump'");
  EXPECT_EQ(ShellWord("[::1]:50051"), "'[::1]:50051'");
  EXPECT_EQ(ShellWord("$(it's)"), "'$(it'\"'\"'s)'");
}

}  // namespace
}  // namespace msprobe::core
