#include "server/analysis/signs/equal_signs.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace msprobe::server {
namespace {

TEST(EqualSignsTest, CountsEveryDifferentBitOfEveryLength) {
  std::mt19937 random(1);
  for (const size_t size : {0u, 1u, 7u, 8u, 31u, 32u, 63u, 64u, 65u, 200u, 4099u}) {
    std::string one(size, 0), other(size, 0);
    uint64_t expected = 0;
    for (size_t i = 0; i < size; ++i) {
      one[i] = static_cast<char>(random());
      other[i] = static_cast<char>(random());
      for (int bit = 0; bit < 8; ++bit) expected += ((one[i] >> bit) & 1) != ((other[i] >> bit) & 1);
    }
    EXPECT_EQ(CountDifferentBits(one.data(), other.data(), size), expected) << size;
    EXPECT_EQ(CountDifferentBitsPortably(one.data(), other.data(), size), expected) << size;
    EXPECT_EQ(CountDifferentBits(one.data(), one.data(), size), 0);
  }
}

}  // namespace
}  // namespace msprobe::server
