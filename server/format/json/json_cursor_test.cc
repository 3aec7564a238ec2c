#include "server/format/json/json_cursor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace msprobe::server {
namespace {

using Type = JsonCursor::Type;

constexpr JsonLimits kExact = {.exact = true};

std::string Error(std::string_view text, JsonLimits limits = {}) {
  JsonCursor json(text, limits);
  json.Skip();
  if (json.ok()) json.ExpectEnd();
  return std::string(json.status().message());
}

TEST(JsonCursorTest, WalksWhatADumpHolds) {
  JsonCursor json(R"( {"a": [1, -2.5e3, NaN, -Infinity, Infinity], "b\u00e9\n": {"c": null}, "d": "x"} )");
  std::string_view key;
  ASSERT_TRUE(json.EnterObject());
  ASSERT_TRUE(json.NextKey(key));
  EXPECT_EQ(key, "a");
  ASSERT_TRUE(json.EnterArray());
  ASSERT_TRUE(json.NextItem());
  EXPECT_EQ(json.Number(), "1");
  ASSERT_TRUE(json.NextItem());
  EXPECT_EQ(json.Number(), "-2.5e3");
  for (Type type : {Type::kNaN, Type::kMinusInfinity, Type::kInfinity}) {
    ASSERT_TRUE(json.NextItem());
    EXPECT_EQ(json.Peek(), type);
    json.Skip();
  }
  EXPECT_FALSE(json.NextItem());
  ASSERT_TRUE(json.NextKey(key));
  EXPECT_EQ(key, "b\xC3\xA9\n");
  json.Skip();
  ASSERT_TRUE(json.NextKey(key));
  EXPECT_EQ(json.String(), "x");
  EXPECT_FALSE(json.NextKey(key));
  json.ExpectEnd();
  EXPECT_TRUE(json.ok()) << json.status();
}

TEST(JsonCursorTest, GoesBackToAValue) {
  JsonCursor json(R"([{"a": 1}, 2])");
  json.EnterArray();
  ASSERT_TRUE(json.NextItem());
  const JsonCursor::Place place = json.place();
  json.Skip();
  json.Return(place);
  ASSERT_TRUE(json.EnterObject());
  std::string_view key;
  ASSERT_TRUE(json.NextKey(key));
  json.Skip();
  ASSERT_FALSE(json.NextKey(key));
  ASSERT_TRUE(json.NextItem());
  EXPECT_EQ(json.Number(), "2");
  EXPECT_FALSE(json.NextItem());
  EXPECT_TRUE(json.ok());
}

TEST(JsonCursorTest, SaysWhereTheTextIsWrong) {
  EXPECT_EQ(Error("{\n \"a\": [1, }\n}"), "line 2, column 11: a value is expected");
  EXPECT_THAT(Error("[1 2]"), testing::HasSubstr("a comma is expected"));
  EXPECT_THAT(Error("{\"a\" 1}"), testing::HasSubstr("a colon is expected"));
  EXPECT_THAT(Error("[\"abc"), testing::HasSubstr("without its closing quote"));
  EXPECT_THAT(Error("[\"\\x\"]"), testing::HasSubstr("an escape that JSON does not have"));
  EXPECT_THAT(Error("[tru]"), testing::HasSubstr("a value is expected"));
  EXPECT_THAT(Error("[1, 2"), testing::HasSubstr("ends inside"));
  EXPECT_THAT(Error(""), testing::HasSubstr("ends where a value is expected"));
  EXPECT_THAT(Error("{} {}"), testing::HasSubstr("something follows"));
  EXPECT_THAT(Error(std::string(100000, '[')), testing::HasSubstr("nested over 400 deep"));
}

TEST(JsonCursorTest, RefusesWhatPythonRefuses) {
  for (std::string_view text :
       {"01",  "-",    "1.",  ".5",   "+1",   "1e",         "1e+",   "1-2",      "--1",       "0x1", "Inf",  "-NaN",
        "nan", "True", "'a'", "[1,]", "[,1]", "{\"a\":1,}", "{a:1}", "\"a\tb\"", "\"\\u12\"", "\"a", "nulls"}) {
    EXPECT_NE(Error(text), "") << text;
  }
  EXPECT_EQ(Error(std::string_view("\"a\0b\"", 5)), "line 1, column 3: a control character in a text");
  EXPECT_EQ(Error("[\"longer than eight\nbytes\"]"), "line 1, column 20: a control character in a text");
  for (std::string_view text :
       {"0", "-0", "-0.5e-7", "1E5", "10", "\"\x7f \xC3\xA9 and more than eight\"", "[]", "{}"}) {
    EXPECT_EQ(Error(text), "") << text;
    EXPECT_EQ(Error(text, kExact), "") << text;
  }
}

TEST(JsonCursorTest, KnowsItsDepthBehindValuesThatWereLeft) {
  const JsonLimits limits = {.max_depth = 2};
  EXPECT_EQ(Error("[[[1]], [[2]], {\"a\": {}}]", limits), "");
  EXPECT_EQ(Error("[[[1]], [[[2]]]]", limits), "line 1, column 11: nested over 2 deep");
  JsonCursor json("[[[1]], [[2]]]", limits);
  json.EnterArray();
  json.NextItem();
  const JsonCursor::Place place = json.place();
  json.EnterArray();
  json.NextItem();
  json.EnterArray();
  json.Return(place);
  json.Skip();
  ASSERT_TRUE(json.NextItem());
  json.Skip();
  EXPECT_FALSE(json.NextItem());
  EXPECT_TRUE(json.ok()) << json.status();
}

TEST(JsonCursorTest, ExactlyRefusesWhatNoValueHolds) {
  for (std::string_view text :
       {"1e309", "-1e309", "[1, 12345e400]", "\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83d\\u0041\""}) {
    EXPECT_EQ(Error(text), "") << text;
    EXPECT_NE(Error(text, kExact), "") << text;
  }
  EXPECT_EQ(Error("[1e309]", kExact), "line 1, column 2: a number beyond the largest double");
  EXPECT_NE(Error(std::string(400, '9'), kExact), "");
  for (std::string_view text : {"1e308", "0e400", "1e-400", "\"\\ud83d\\ude00\""})
    EXPECT_EQ(Error(text, kExact), "") << text;
}

TEST(JsonCursorTest, TakesValuesAsTheyStand) {
  JsonCursor json(R"([ {"a": [1, "x"]} , "b\n",NaN, -Infinity , true])");
  json.EnterArray();
  std::string seen;
  while (json.NextItem()) seen += std::string(json.Take().text) + "|";
  EXPECT_EQ(seen, R"({"a": [1, "x"]}|"b\n"|NaN|-Infinity|true|)");
  JsonCursor cut("[1");
  cut.EnterArray();
  cut.NextItem();
  EXPECT_TRUE(cut.Take());
  EXPECT_FALSE(cut.NextItem());
  EXPECT_FALSE(cut.Take());
}

TEST(JsonCursorTest, JoinsSurrogatesAndReplacesLonelyOnes) {
  JsonCursor json(R"(["\ud83d\ude00", "\ud83d"])");
  json.EnterArray();
  json.NextItem();
  EXPECT_EQ(json.String(), "\xF0\x9F\x98\x80");
  json.NextItem();
  EXPECT_EQ(json.String(), "\xEF\xBF\xBD");
}

TEST(IsUtf8Test, KnowsWhatIsWellFormed) {
  EXPECT_TRUE(IsUtf8("plain text of more than eight bytes \xC3\xBC \xE2\x82\xAC \xF0\x9F\x98\x80"));
  for (std::string_view bad : {"\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\x80", "\xC3("}) {
    EXPECT_FALSE(IsUtf8(bad));
  }
  EXPECT_EQ(Utf8Prefix("plain text \xC3\xBC, then \xFF and more"), 20u);
}

}  // namespace
}  // namespace msprobe::server
