#include "agent/core/transport/packing/source_lines.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/core/str_cat.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

TEST(SourceLinesTest, GivesStrippedLinesAndNothingForWhatIsNotThere) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / Cat("core-lines-", getpid(), ".py");
  std::ofstream(path) << "first\n\t  x = 1  # caf\xE9\r\n\nlast";
  SourceLines lines;
  EXPECT_EQ(lines.Line(path, 1), "first");
  EXPECT_EQ(lines.Line(path, 2), "x = 1  # caf\xEF\xBF\xBD");
  EXPECT_EQ(lines.Line(path, 3), "");
  EXPECT_EQ(lines.Line(path, 4), "last");
  EXPECT_EQ(lines.Line(path, 5), "");
  EXPECT_EQ(lines.Line(path, 0), "");
  std::filesystem::remove(path);
  EXPECT_EQ(lines.Line(path, 1), "first");  // read once
  EXPECT_EQ(lines.Line("<string>", 1), "");
  EXPECT_EQ(lines.Line("/proc/self/mem", 1), "");
  EXPECT_EQ(lines.Line("/", 1), "");
}

}  // namespace
}  // namespace msprobe::core
