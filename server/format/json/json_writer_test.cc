#include "server/format/json/json_writer.h"

#include <gtest/gtest.h>

#include <string>

namespace msprobe::server {
namespace {

std::string Written(std::string_view json, bool strict = false) {
  JsonWriter writer(strict);
  writer.Json(json);
  return writer.Take();
}

TEST(JsonWriterTest, WritesJsonAnewAsPythonDoes) {
  EXPECT_EQ(Written(R"( {"a" : [1, 1.0, 1e22, -0, true, null], "é": "\u00e9\n"} )"),
            R"({"a":[1,1.0,1e+22,0,true,null],"\u00E9":"\u00E9\n"})");
  EXPECT_EQ(Written("[18446744073709551615, 18446744073709551616]"), "[18446744073709551615,1.8446744073709552e+19]");
  EXPECT_EQ(Written("[NaN, -Infinity]"), "[NaN,-Infinity]");
  EXPECT_EQ(Written("[NaN, -Infinity]", true), "[null,null]");
}

TEST(JsonWriterTest, AZeroIsZeroWhateverItsExponent) { EXPECT_EQ(Written("[0e55, 0.000e300]"), "[0.0,0.0]"); }

TEST(JsonWriterTest, WhatIsNoJsonIsNull) {
  for (const char* text : {"", "[1", "[1] 2", "{\"a\"}", "1e999", "\"\\ud800\"", "\"\xFF\""}) {
    EXPECT_EQ(Written(text), "null") << text;
  }
}

}  // namespace
}  // namespace msprobe::server
