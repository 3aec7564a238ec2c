#include "agent/core/payload/mapped_memory.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

TEST(MappedMemoryTest, GivesWholePagesOfZeros) {
  const MappedMemory memory = MappedMemory::Allocate(5000);
  ASSERT_FALSE(memory.empty());
  EXPECT_EQ(memory.size(), MappedMemory::Rounded(5000));
  EXPECT_GE(memory.size(), 5000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 4096, 0u);
  EXPECT_EQ(memory.get()[memory.size() - 1], std::byte{0});
  std::memset(memory.get(), 1, memory.size());
}

TEST(MappedMemoryTest, MovesAndSwaps) {
  MappedMemory first = MappedMemory::Allocate(1);
  std::byte* const at = first.get();
  MappedMemory second = std::move(first);
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): what a move leaves is part of the contract
  EXPECT_EQ(second.get(), at);
  second = MappedMemory();
  EXPECT_TRUE(second.empty());
}

TEST(MappedMemoryTest, IsEmptyWhereTheKernelHasNone) { EXPECT_TRUE(MappedMemory::Allocate(size_t{1} << 62).empty()); }

}  // namespace
}  // namespace msprobe::core
