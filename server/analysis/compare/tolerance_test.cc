#include "server/analysis/compare/tolerance.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

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

TEST(TolerancesTest, ARelativeToleranceOfInfinityAllowsADifferenceFromZero) {
  Tolerances tolerances;
  tolerances.Set("int64", {std::numeric_limits<double>::infinity(), 0});
  tolerances.AddRule("*.input.0", "float32", std::numeric_limits<double>::infinity(), std::nullopt);
  for (const auto& [dtype, name] : {std::pair("torch.int64", "a"), std::pair("torch.float32", "a.input.0")}) {
    const Tolerance found = tolerances.Of(dtype, dtype, name);
    EXPECT_TRUE(1e300 <= found.absolute + found.relative * 0) << dtype;
  }
}

TEST(TolerancesTest, TheLastRuleThatTakesARowWinsFieldByField) {
  Tolerances tolerances;
  tolerances.Set("float32", {0.5, 0.5});
  tolerances.AddRule("*norm*", "", 0.1, 0.2);
  tolerances.AddRule("*.output.*", "float32", 0.3, std::nullopt);
  const auto of = [&](std::string_view name, std::string_view dtype = "torch.float32") {
    const Tolerance found = tolerances.Of(dtype, dtype, name);
    return std::pair(found.relative, found.absolute);
  };
  EXPECT_EQ(of("Functional.linear.0.forward.input.0"), std::pair(0.5, 0.5));
  EXPECT_EQ(of("Functional.layer_norm.0.forward.input.0"), std::pair(0.1, 0.2));
  EXPECT_EQ(of("Functional.layer_norm.0.forward.output.0"), std::pair(0.3, 0.2));
  EXPECT_EQ(of("Functional.layer_norm.0.forward.output.0", "torch.int64"), std::pair(0.1, 0.2)) << "no dtype: any";
}

}  // namespace
}  // namespace msprobe::server
