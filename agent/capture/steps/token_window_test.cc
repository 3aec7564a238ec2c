#include "agent/capture/steps/token_window.h"

#include "gtest/gtest.h"

namespace msprobe::capture {
namespace {

TEST(TokenWindowTest, WithoutARangeEverythingIsInside) {
  TokenWindow window;
  EXPECT_TRUE(window.inside());
  window.BeginPass();
  EXPECT_TRUE(window.inside());
}

TEST(TokenWindowTest, BothEndsAreInsideAndWhatFollowsAPassBelongsToIt) {
  TokenWindow window;
  window.Open(TokenWindow::Range{1, 2});
  EXPECT_FALSE(window.inside());  // before the first pass
  for (const bool inside : {false, true, true, false, false}) {
    window.BeginPass();
    EXPECT_EQ(window.inside(), inside);
  }
  window.Open(TokenWindow::Range{0, 0});
  EXPECT_FALSE(window.inside());
  window.BeginPass();
  EXPECT_TRUE(window.inside());
  window.BeginPass();
  EXPECT_FALSE(window.inside());
  window.Open(std::nullopt);
  EXPECT_TRUE(window.inside());
}

}  // namespace
}  // namespace msprobe::capture
