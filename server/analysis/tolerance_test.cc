#include "server/analysis/tolerance.h"

#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

TEST(TolerancesTest, TheDTypeOfFewerDigitsDecides) {
  const Tolerances tolerances;
  EXPECT_EQ(tolerances.Of("torch.float32", "torch.float32").relative, 1.3e-6);
  EXPECT_EQ(tolerances.Of("torch.bfloat16", "torch.float32").relative, 1.6e-2);
  EXPECT_EQ(tolerances.Of("torch.float64", "torch.float16").relative, 1e-3);
  EXPECT_EQ(tolerances.Of("Float32", "Float32").absolute, 1e-5);
  EXPECT_EQ(tolerances.Of("torch.int64", "torch.int64").relative, 0);
  EXPECT_EQ(tolerances.Of("torch.bool", "torch.bool").absolute, 0);
}

TEST(TolerancesTest, WhatWasSetForADTypeWins) {
  Tolerances tolerances;
  tolerances.Override(0.5, std::nullopt);
  tolerances.Set("bfloat16", {0.25, 0});
  EXPECT_EQ(tolerances.Of("torch.float32", "torch.float32").relative, 0.5);
  EXPECT_EQ(tolerances.Of("torch.float32", "torch.float32").absolute, 1e-5);
  EXPECT_EQ(tolerances.Of("torch.float32", "torch.bfloat16").relative, 0.25);
  EXPECT_EQ(tolerances.Of("torch.int32", "torch.int32").relative, 0) << "integers have no tolerance unless named";
}

}  // namespace
}  // namespace msprobe::server
