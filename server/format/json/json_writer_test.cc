#include "server/format/json/json_writer.h"

#include <gtest/gtest.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

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

TEST(JsonWriterTest, EveryCharacterIsWrittenAsRapidJsonDoes) {
  for (int i = 0; i < 128; ++i) {
    for (size_t place = 0; place < 17; ++place) {
      for (const char* rest : {"", "\n12345678", "\"\u00e9"}) {
        const std::string text = std::string(place, 'a') + static_cast<char>(i) + rest;
        rapidjson::StringBuffer buffer;
        rapidjson::Writer<rapidjson::StringBuffer, rapidjson::UTF8<>, rapidjson::ASCII<>> expected(buffer);
        expected.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
        JsonWriter writer(true);
        writer.Text(text);
        EXPECT_EQ(writer.Take(), buffer.GetString()) << i << " at " << place << ", then " << rest;
      }
    }
  }
}

TEST(JsonWriterTest, TheLongestNumbersHaveRoom) {
  for (const char* number : {"-0.00012345678901234567", "-1234567890123456.2", "-2.2250738585072014e-308",
                             "-1.7976931348623157e+308", "-9999999999999998.0"}) {
    EXPECT_EQ(Written(number), number);
  }
}

TEST(JsonWriterTest, WhatIsNoJsonIsNull) {
  for (const char* text : {"", "[1", "[1] 2", "{\"a\"}", "1e999", "\"\\ud800\"", "\"\xFF\""}) {
    EXPECT_EQ(Written(text), "null") << text;
  }
}

}  // namespace
}  // namespace msprobe::server
