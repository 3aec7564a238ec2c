#include "server/format/dump/dump_value.h"

#include <gtest/gtest.h>

#include <string>

namespace msprobe::server {
namespace {

DumpKind KindOf(std::string_view text) {
  JsonCursor json(text);
  DumpLeaf leaf;
  return NextDumpValue(json, leaf);
}

TEST(DumpValueTest, Kinds) {
  EXPECT_EQ(KindOf("null"), DumpKind::kNull);
  EXPECT_EQ(KindOf("[{}]"), DumpKind::kList);
  EXPECT_EQ(KindOf(R"({"type": "int", "value": 3})"), DumpKind::kLeaf);
  EXPECT_EQ(KindOf(R"({"value": 3, "type": "int"})"), DumpKind::kLeaf);
  EXPECT_EQ(KindOf(R"({"a": null})"), DumpKind::kDict);
  EXPECT_EQ(KindOf(R"({"type": {"type": "int", "value": 3}})"), DumpKind::kDict);  // of a user
  for (const char* bare : {"3", "true", "\"a\"", "NaN"}) EXPECT_EQ(KindOf(bare), DumpKind::kBare) << bare;
  for (const char* bad : {"", "nul", "{\"type\": \"int\"", "x"}) EXPECT_EQ(KindOf(bad), DumpKind::kError) << bad;
}

TEST(DumpValueTest, TakesALeafAndLeavesADict) {
  JsonCursor json(R"([{"type": "torch.Tensor", "dtype": "torch.int8", "shape": [2], "Max": 1, "Min": NaN, "Mean": null,
                       "requires_grad": true, "md5": "00", "data_name": "a.pt", "q": {"x": 1}, "Max": 2, "w": "v"},
                      {"a": {"b": 1}}])");
  json.EnterArray();
  json.NextItem();
  DumpLeaf leaf;
  ASSERT_EQ(NextDumpValue(json, leaf), DumpKind::kLeaf);
  EXPECT_EQ(leaf.type.text, "\"torch.Tensor\"");
  EXPECT_EQ(leaf.shape.text, "[2]");
  EXPECT_EQ(leaf.max.text, "2");  // the last, as in Python
  EXPECT_EQ(leaf.min.type, JsonType::kNaN);
  EXPECT_TRUE(leaf.mean.is_null());
  EXPECT_FALSE(leaf.norm);
  EXPECT_FALSE(leaf.extended);
  ASSERT_EQ(leaf.others.size(), 2u);
  EXPECT_EQ(leaf.Other("q").text, R"({"x": 1})");
  EXPECT_FALSE(leaf.Other("x"));
  ASSERT_TRUE(json.NextItem());
  ASSERT_EQ(NextDumpValue(json, leaf), DumpKind::kDict);
  EXPECT_FALSE(leaf.type);  // nothing of the leaf before
  EXPECT_EQ(leaf.Other("a").text, R"({"b": 1})");
  EXPECT_EQ(json.Take().text, R"({"a": {"b": 1}})");
  EXPECT_FALSE(json.NextItem());
  EXPECT_TRUE(json.ok());
}

}  // namespace
}  // namespace msprobe::server
