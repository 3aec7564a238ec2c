#include "server/format/json/json_cursor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace msprobe::server {
namespace {

using Type = JsonCursor::Type;

std::string Error(std::string_view text) {
  JsonCursor json(text);
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
    json.Literal();
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
  const size_t place = json.offset();
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
  EXPECT_THAT(Error(std::string(100000, '[')), testing::HasSubstr("nested too deep"));
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
}

}  // namespace
}  // namespace msprobe::server
