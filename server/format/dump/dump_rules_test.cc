#include "server/format/dump/dump_rules.h"

#include <gtest/gtest.h>

#include <string>

namespace msprobe::server {
namespace {

TEST(DumpRules, WhatTorchTensorsShow) {
  const auto shown = [](v1::DType dtype, bool high_precision = false) {
    const DumpRules rules = DumpRulesOf("torch.Tensor", dtype, high_precision);
    std::string text;
    if (rules.statistics) text += "extremes ";
    if (rules.mean) text += "mean ";
    if (rules.norm) text += "norm ";
    if (rules.own_value) text += "own value";
    return text;
  };
  EXPECT_EQ(shown(v1::DTYPE_FLOAT32), "extremes mean norm own value");
  EXPECT_EQ(shown(v1::DTYPE_FLOAT64), "extremes own value");
  EXPECT_EQ(shown(v1::DTYPE_FLOAT64, true), "extremes mean norm own value");
  EXPECT_EQ(shown(v1::DTYPE_INT32), "extremes own value");
  EXPECT_EQ(shown(v1::DTYPE_BOOL), "extremes ");
  EXPECT_EQ(shown(v1::DTYPE_COMPLEX64), "extremes mean ");
  EXPECT_EQ(shown(v1::DTYPE_QINT8), "extremes own value");
  EXPECT_EQ(shown(v1::DTYPE_FLOAT4_E2M1FN_X2), "mean norm own value");
}

TEST(DumpRules, NumpyArraysShowAll) {
  for (v1::DType dtype : {v1::DTYPE_FLOAT64, v1::DTYPE_INT32, v1::DTYPE_FLOAT8_E4M3FN}) {
    const DumpRules rules = DumpRulesOf("numpy.ndarray", dtype, false);
    EXPECT_TRUE(rules.statistics && rules.mean && rules.norm && !rules.own_value && !rules.real_extremes);
  }
}

TEST(DumpRules, TensorsOfMindsporeShowAllButOfBool) {
  for (v1::DType dtype : {v1::DTYPE_FLOAT64, v1::DTYPE_INT32, v1::DTYPE_FLOAT8_E4M3FN}) {
    const DumpRules rules = DumpRulesOf("mindspore.Tensor", dtype, false);
    EXPECT_TRUE(rules.statistics && rules.mean && rules.norm && rules.own_value && rules.real_extremes);
  }
  const DumpRules rules = DumpRulesOf("mindspore.Tensor", v1::DTYPE_BOOL, false);
  EXPECT_TRUE(rules.statistics && !rules.mean && !rules.norm && !rules.own_value && !rules.real_extremes);
}

TEST(ShowXor, ValuesWithoutDimensionsAndWordsElse) {
  EXPECT_EQ(ShowXor("torch.Tensor", v1::DTYPE_FLOAT32, true, 0x40400000), ShownXor(3.0));
  EXPECT_EQ(ShowXor("torch.Tensor", v1::DTYPE_FLOAT32, false, 0x40400000), ShownXor(uint64_t{0x40400000}));
  EXPECT_EQ(ShowXor("torch.Tensor", v1::DTYPE_INT8, true, 0xff), ShownXor(~uint64_t{0}));
  EXPECT_EQ(ShowXor("torch.Tensor", v1::DTYPE_UINT8, true, 0xff), ShownXor(uint64_t{0xff}));
  EXPECT_EQ(ShowXor("torch.Tensor", v1::DTYPE_FLOAT8_E4M3FN, false, 1), ShownXor());
}

}  // namespace
}  // namespace msprobe::server
