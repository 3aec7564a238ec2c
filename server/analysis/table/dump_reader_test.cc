#include "server/analysis/table/dump_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kHead = R"({"task":"statistics","level":"L1","framework":"mindspore","data":)";

std::string Dump(std::string_view data) { return Cat(kHead, data, "}"); }

std::string Error(std::string_view text) {
  StepTable table;
  return std::string(StdView(DumpReader(&table).AddDump(text).message()));
}

std::vector<std::string> Names(const StepTable& table) {
  std::vector<std::string> names;
  for (const Row& row : table.rows) names.emplace_back(row.name);
  return names;
}

TEST(DumpReaderTest, RowsOfAnEntry) {
  StepTable table;
  ASSERT_TRUE(DumpReader(&table)
                  .AddDump(Dump(R"({"T.f.0.forward":{"output":[null],"stray":[3],
      "input_args":[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2, 3],"Max":1.5,"Min":-Infinity,"Mean":NaN,
                     "Norm":null,"requires_grad":true,"md5":"0badcafe","data_name":"a.b.pt"},
                    [{"type":"int","value":7}, "bare"]],
      "input_kwargs":{"k":{"type":"slice","value":[null,1,"x"]}}}})"))
                  .ok());
  EXPECT_EQ(table.framework, "mindspore");
  EXPECT_EQ(table.level, "L1");
  EXPECT_EQ(table.mode, StepTable::Mode::kChecksum);
  EXPECT_THAT(Names(table),
              ElementsAre("a.b", "T.f.0.forward.input.1.0", "T.f.0.forward.input.k", "T.f.0.forward.output.0"));
  const Row& tensor = table.rows[0];
  EXPECT_EQ(table.text(tensor.shape), "[2, 3]");
  EXPECT_EQ(tensor.statistics[0].real, 1.5);
  EXPECT_EQ(tensor.statistics[3].kind, Cell::Kind::kNone);
  EXPECT_EQ(tensor.requires_grad, Row::Grad::kTrue);
  EXPECT_EQ(tensor.checksum, "0badcafe");
  EXPECT_EQ(table.rows[1].statistics[0].integer, 7);
  EXPECT_EQ(table.rows[2].said, "[None, 1, 'x']");
  EXPECT_TRUE(table.rows[3].is_null);
}

TEST(DumpReaderTest, NumbersBeyondTheirTypesAreRead) {
  StepTable table;
  ASSERT_TRUE(
      DumpReader(&table)
          .AddDump(Dump(R"({"T.f.0.forward":{"output":[{"type":"torch.Tensor","dtype":"torch.uint64","shape":[1],
      "Max":18446744073709551615,"Min":1e999,"Mean":-1e-999,"Norm":0e55}]}})"))
          .ok());
  const auto& statistics = table.rows[0].statistics;
  EXPECT_EQ(statistics[0].kind, Cell::Kind::kUnsigned);
  EXPECT_EQ(statistics[0].unsigned_integer, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(statistics[1].real, std::numeric_limits<double>::infinity());
  EXPECT_EQ(statistics[2].real, 0);
  EXPECT_EQ(statistics[3].real, 0);
}

TEST(DumpReaderTest, ASendIsTheRowOfItsTensor) {
  StepTable table;
  ASSERT_TRUE(DumpReader(&table)
                  .AddDump(Dump(R"({"D.batch_isend_irecv.0.forward":{"input_args":[[
      {"class_type":"torch.distributed.P2POp","op":"isend","peer":3,"tag":0,
       "tensor":{"type":"torch.Tensor","dtype":"torch.float32","shape":[3]}},
      {"class_type":"torch.distributed.P2POp","op":"irecv","peer":2,"tensor":null}]]}})"))
                  .ok());
  EXPECT_THAT(Names(table),
              ElementsAre("D.batch_isend_irecv.0.forward.input.0.0", "D.batch_isend_irecv.0.forward.input.0.1"));
  ASSERT_EQ(table.messages.size(), 1u);
  EXPECT_EQ(table.messages[0].row, 0u);
  EXPECT_EQ(table.messages[0].op, "isend");
  EXPECT_EQ(table.messages[0].peer, 3);
  EXPECT_TRUE(table.rows[1].is_null);
}

TEST(DumpReaderTest, StacksAndParents) {
  StepTable table;
  DumpReader reader(&table);
  ASSERT_TRUE(reader.AddDump(Dump(R"({"T.f.0.forward":{},"T.g.0.forward":{},"T.h.0.forward":{}})")).ok());
  ASSERT_TRUE(
      reader.AddStacks(R"({"0":[["T.f.0.forward","T.h.0.forward",3],["a\"b",null]],"T.g.0.forward":["c"]})").ok());
  ASSERT_TRUE(reader
                  .AddConstruct(R"({"T.f.0.forward":"M.m.forward.0","T.g.0.forward":["M.n.forward.0",1],
                                      "T.h.0.forward":null,"optimizer":"x"})")
                  .ok());
  EXPECT_TRUE(table.has_stacks);
  EXPECT_THAT(table.stacks, ElementsAre(ElementsAre("a\"b"), ElementsAre("c")));
  EXPECT_THAT((std::vector<int32_t>{table.entries[0].stack, table.entries[1].stack, table.entries[2].stack}),
              ElementsAre(0, 1, 0));
  EXPECT_EQ(table.entries[0].parent, "M.m.forward.0");
  EXPECT_EQ(table.entries[1].parent, "M.n.forward.0");
  EXPECT_EQ(table.entries[2].parent, "");
}

TEST(DumpReaderTest, NamesThePlaceOfWhatIsMalformed) {
  EXPECT_EQ(Error("{\n \"data\": {,}}"), "line 2, column 11: a text is expected");
  EXPECT_EQ(Error("{}"), "it has no \"data\": not a dump.json");
  EXPECT_EQ(Error(R"({"data": null})"), "");
  EXPECT_THAT(Error(R"({"data": [1]})"), HasSubstr("line 1, column 10: an object is expected"));
  EXPECT_EQ(Error(R"({"data": {"a.0.forward": {"output": [{"type": "x", "dtype": "y", "shape": ["z"]}]}}})"),
            "line 1, column 75: a.0.forward.output.0: shape: a size from 0 is expected, not the text \"z\"");
  EXPECT_EQ(Error(R"({"data": {"a.0.forward": {}, "b.0.forward": {}, "a.0.forward": {}}})"),
            "line 1, column 47: data has the entry a.0.forward twice; leave one of them");
  EXPECT_THAT(Error(Dump(R"({"a.0.forward": {"output": 1-2}})")), HasSubstr("a comma is expected"));
}

}  // namespace
}  // namespace msprobe::server
