#include "server/format/dump/dump_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

namespace msprobe::server {
namespace {

// Bytes of this process that are in memory.
size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(DumpTextTest, IsWhatTheSourceHasAlsoOnceItMoved) {
  const std::string content = "{\"data\": {}}";
  MemoryBytes source(content);
  auto text = DumpText::Read(source);
  ASSERT_TRUE(text.ok()) << text.status();
  const std::string_view before = text->view();
  const DumpText moved = *std::move(text);
  EXPECT_EQ(moved.view(), content);
  EXPECT_EQ(before.data(), moved.view().data());
}

TEST(DumpTextTest, AnEmptyFileIsAnEmptyText) {
  MemoryBytes source("");
  auto text = DumpText::Read(source);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(text->view().empty());
}

TEST(DumpTextTest, GivesTheErrorOfItsSource) {
  class Shrunk : public ByteSource {
   public:
    uint64_t size() const override { return 10; }
    absl::Status ReadAt(uint64_t, std::span<char>) override { return absl::OutOfRangeError("it became shorter"); }
  } source;
  EXPECT_EQ(DumpText::Read(source).status(), absl::OutOfRangeError("it became shorter"));
}

TEST(DumpTextTest, ItsMemoryGoesBackToTheSystem) {
  constexpr size_t kBytes = size_t{16} << 20;
  const std::string content(kBytes, ' ');
  MemoryBytes source(content);
  const size_t before = ResidentBytes();
  {
    auto text = DumpText::Read(source);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_GT(ResidentBytes(), before + kBytes / 2);
  }
  EXPECT_LT(ResidentBytes(), before + kBytes / 2);
}

}  // namespace
}  // namespace msprobe::server
