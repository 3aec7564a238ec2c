#include "server/format/dump/dump_value.h"

#include <gtest/gtest.h>

#include <string>

#include "server/format/cat.h"

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

std::string WrongIn(std::string_view members) {
  const std::string text = Cat(R"({"type": "torch.Tensor", "dtype": "torch.int8", "shape": [2], )", members, "}");
  JsonCursor json(text);
  DumpLeaf leaf;
  EXPECT_EQ(NextDumpValue(json, leaf), DumpKind::kLeaf);
  EXPECT_TRUE(leaf.is_tensor());
  return std::string(StdView(CheckTensor(leaf).message()));
}

TEST(DumpValueTest, JudgesATensor) {
  EXPECT_EQ(WrongIn(R"("shape": [], "Max": true, "Min": -Infinity, "Mean": false, "Norm": NaN, "requires_grad": false,
                       "data_name": "a.pt", "extended": {}, "md5": "00")"),
            "");
  EXPECT_EQ(WrongIn(R"("dtype": 3)"), "dtype: the name of a type is expected, not the number 3");
  EXPECT_EQ(WrongIn(R"("shape": "abc")"), R"(shape: a list of up to 64 sizes is expected, not the text "abc")");
  EXPECT_EQ(WrongIn(R"("shape": [2, -1])"), "shape: a size from 0 is expected, not the number -1");
  EXPECT_EQ(WrongIn(R"("shape": [1.5])"), "shape: a size from 0 is expected, not the number 1.5");
  EXPECT_EQ(WrongIn(R"("Max": "1")"), R"(Max: a number, a bool or null is expected, not the text "1")");
  EXPECT_EQ(WrongIn(R"("Norm": [])"), "Norm: a number, a bool or null is expected, not a list");
  EXPECT_EQ(WrongIn(R"("requires_grad": 1)"), "requires_grad: true or false is expected, not the number 1");
  EXPECT_EQ(WrongIn(R"("data_name": null)"), "data_name: a file's name is expected, not null");
  EXPECT_EQ(WrongIn(R"("extended": 1)"), "extended: an object is expected, not the number 1");
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
