#include "server/format/storage/extent.h"

#include <gtest/gtest.h>

#include "server/format/storage/key.h"

namespace msprobe::server {
namespace {

TEST(Extent, ReferenceBytes) {
  const Extent extent{12, 8192, 5000, 0xdeadbeef};
  EXPECT_EQ(Hex(extent.Encode()), "0000000c0000200000001388deadbeef");
  EXPECT_EQ(*Extent::Decode(extent.Encode()), extent);
  EXPECT_EQ(extent.padded_size(), 8192u);
}

TEST(Extent, AnotherLengthIsDamage) {
  EXPECT_TRUE(absl::IsDataLoss(Extent::Decode("short").status()));
  EXPECT_TRUE(absl::IsDataLoss(Extent::Decode(Extent().Encode() + "x").status()));
}

}  // namespace
}  // namespace msprobe::server
