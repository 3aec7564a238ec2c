#include "server/format/dump/dump_cursor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/format/cat.h"
#include "server/format/json/json_value.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

// "name=value;" of each entry, or the error.
std::string Entries(std::string_view text) {
  DumpCursor dump(text);
  std::string seen;
  for (std::string name; dump.NextEntry(name);) seen += Cat(name, "=", dump.json().Take().text, ";");
  return dump.status().ok() ? seen : std::string(StdView(dump.status().message()));
}

TEST(DumpCursorTest, GivesEntriesInOrderAndWhatStandsBesideThem) {
  DumpCursor dump(R"({"task": "tensor", "level": null, "dump_data_dir": {"a": [1]},
                      "data": {"T.f.0.forward": {"output": []}, "T.g\u00e9.0.forward": 3}, "framework": "pytorch"})");
  std::string name;
  ASSERT_TRUE(dump.NextEntry(name));
  EXPECT_EQ(name, "T.f.0.forward");
  EXPECT_EQ(dump.json().Take().text, R"({"output": []})");
  ASSERT_TRUE(dump.NextEntry(name));
  EXPECT_EQ(name, "T.g\xC3\xA9.0.forward");
  EXPECT_EQ(dump.json().Take().text, "3");
  EXPECT_FALSE(dump.NextEntry(name));
  EXPECT_FALSE(dump.NextEntry(name));
  EXPECT_TRUE(dump.status().ok());
  EXPECT_EQ(StringOf(dump.task()), "tensor");
  EXPECT_TRUE(dump.level().is_null());
  EXPECT_EQ(StringOf(dump.framework()), "pytorch");
  EXPECT_TRUE(dump.data().is_object());
}

TEST(DumpCursorTest, DataThatIsNoObjectIsTheReadersToJudge) {
  DumpCursor none(R"({"task": "tensor"})");
  std::string name;
  EXPECT_FALSE(none.NextEntry(name));
  EXPECT_FALSE(none.data());
  DumpCursor null(R"({"data": null})");
  EXPECT_FALSE(null.NextEntry(name));
  EXPECT_TRUE(null.status().ok() && null.data().is_null());
}

TEST(DumpCursorTest, RefusesWhatIsCutOrNoDump) {
  const std::string whole = R"({"data": {"a.0.forward": {}, "b.0.forward": {"output": [1]}}})";
  EXPECT_EQ(Entries(whole), R"(a.0.forward={};b.0.forward={"output": [1]};)");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(Entries(whole.substr(0, size)), HasSubstr("line 1, column ")) << size;
  }
  EXPECT_EQ(Entries("[]"), "line 1, column 1: a JSON object is expected, not a list");
  EXPECT_THAT(Entries(whole + "x"), HasSubstr("something follows"));
  EXPECT_EQ(Entries("{\"data\": {\"\xFF\": 1}}"), "line 1, column 12: the text is not UTF-8");
}

}  // namespace
}  // namespace msprobe::server
