#include "server/format/json/json_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace msprobe::server {
namespace {

JsonText Value(std::string_view text) { return JsonCursor(text).Take(); }

TEST(JsonValueTest, StringsWithAndWithoutEscapes) {
  std::string scratch;
  EXPECT_EQ(StringOf(Value(R"("plain")"), scratch), "plain");
  EXPECT_EQ(StringOf(Value(R"("a\"b\u00e9\n")"), scratch), "a\"b\xC3\xA9\n");
  EXPECT_EQ(StringOf(Value(R"("")")), "");
}

TEST(JsonValueTest, NumbersAreWholeWhereTheyFit) {
  EXPECT_EQ(NumberOf(Value("-7")), JsonNumberValue(int64_t{-7}));
  EXPECT_EQ(NumberOf(Value("9223372036854775807")), JsonNumberValue(std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(NumberOf(Value("18446744073709551615")), JsonNumberValue(std::numeric_limits<uint64_t>::max()));
  EXPECT_EQ(NumberOf(Value("18446744073709551616")), JsonNumberValue(18446744073709551616.0));
  EXPECT_EQ(NumberOf(Value("1.0")), JsonNumberValue(1.0));
  EXPECT_EQ(NumberOf(Value("1e2")), JsonNumberValue(100.0));
  EXPECT_EQ(NumberOf(Value("0e55")), JsonNumberValue(0.0));
  EXPECT_TRUE(std::isnan(DoubleOf(Value("NaN"))));
  EXPECT_EQ(DoubleOf(Value("-Infinity")), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(DoubleOf(Value("1e400")), std::numeric_limits<double>::infinity());
  EXPECT_EQ(DoubleOf(Value("1e-400")), 0.0);
  EXPECT_EQ(DoubleOf(Value("3")), 3.0);
}

TEST(JsonValueTest, WholeNumbersOfAType) {
  EXPECT_EQ(Int64Of(Value("-3")), -3);
  EXPECT_EQ(Uint64Of(Value("18446744073709551615")), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(Uint64Of(Value("-0")), 0u);
  for (const char* other : {"3.0", "18446744073709551616", "true", "\"3\"", "NaN"}) {
    EXPECT_FALSE(Int64Of(Value(other))) << other;
    EXPECT_FALSE(Uint64Of(Value(other))) << other;
  }
  EXPECT_FALSE(Uint64Of(Value("-1")));
  EXPECT_FALSE(Int64Of(JsonText()));
}

TEST(JsonValueTest, DescribesForMessages) {
  EXPECT_EQ(Describe(Value("{}")), "an object");
  EXPECT_EQ(Describe(Value("[1]")), "a list");
  EXPECT_EQ(Describe(Value("null")), "null");
  EXPECT_EQ(Describe(Value("true")), "true");
  EXPECT_EQ(Describe(Value("1.50")), "the number 1.5");
  EXPECT_EQ(Describe(Value(R"("a\"b")")), R"(the text "a\"b")");
  EXPECT_EQ(Describe(Value("\"" + std::string(100, 'x') + "\"")), "the text \"" + std::string(60, 'x') + "\"");
}

}  // namespace
}  // namespace msprobe::server
