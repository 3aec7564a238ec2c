#include "server/format/storage/block_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "server/format/storage/scripted_block.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

v1::Structure Everything() {
  v1::Structure structure = TensorStructure("Torch.everything", v1::RECORD_API, {"input_args", "input_kwargs"});
  v1::Node::Dict* dict = structure.mutable_fields()->mutable_dict();
  for (v1::Node::Slot slot :
       {v1::Node::NONE, v1::Node::BOOLEAN, v1::Node::INTEGER, v1::Node::FLOAT, v1::Node::STRING, v1::Node::JSON}) {
    v1::Node::Entry* entry = dict->add_entries();
    entry->set_key(v1::Node::Slot_Name(slot));
    entry->mutable_value()->set_slot(slot);
  }
  return structure;
}

v1::Block GoodBlock() {
  BlockScript script(3, 0);
  script.Fragment(Everything(), 0, 5, v1::FRAGMENT_ENTER, {1, 2}, std::string(16, 'h'), 8).Parent("P").Stack(77);
  v1::Block& block = script.block();
  block.add_booleans(true);
  block.add_integers(-4);
  block.add_floats(2.5);
  block.add_strings("text");
  block.add_strings("[1]");
  // The second leaf is an integer with a checksum.
  block.set_leaf_flags(1, v1::LEAF_STATISTICS | v1::LEAF_INTEGER | v1::LEAF_WIDE | v1::LEAF_CRC32 | v1::LEAF_XOR);
  block.mutable_narrow()->Truncate(5);
  block.mutable_payload()->RemoveLast();
  for (int64_t value : {9, -9}) block.add_integer_extremes(value);
  for (double value : {0., 1., 2.}) block.add_integer_moments(value);
  block.add_crc32(1);
  block.add_xor64(2);
  block.add_non_finite()->set_leaf(0);
  return block;
}

absl::StatusOr<std::vector<FragmentColumns>> Check(const v1::Block& block) {
  static const StructureSummary summary = *Summarize(Everything());
  static const uint64_t id = IdOf(Everything());
  return CheckBlock(
      block, [&](uint64_t asked) { return asked == id ? &summary : nullptr; },
      [](uint64_t stack) { return stack == 77; });
}

TEST(CheckBlock, FindsWhereEachFragmentBegins) {
  v1::Block block = GoodBlock();
  auto columns = Check(block);
  ASSERT_TRUE(columns.ok()) << columns.status();
  ASSERT_EQ(columns->size(), 1u);
  EXPECT_EQ((*columns)[0].ordinal, 5u);
  // The same fragment twice: the second begins after the values of the first.
  v1::Block twice = block;
  twice.MergeFrom(block);
  twice.mutable_shapes()->RemoveLast();
  columns = Check(twice);
  ASSERT_TRUE(columns.ok()) << columns.status();
  const FragmentColumns& second = (*columns)[1];
  EXPECT_EQ(second.ordinal, 10u);
  EXPECT_EQ(second.leaf, 2u);
  EXPECT_EQ(second.statistics, 2u);
  EXPECT_EQ(second.narrow, 1u);
  EXPECT_EQ(second.integer, 1u);
  EXPECT_EQ(second.wide, 0u);
  EXPECT_EQ(second.crc32, 1u);
  EXPECT_EQ(second.payload, 1u);
  EXPECT_EQ(second.strings, 2u);
}

struct Damage {
  const char* name;
  std::function<void(v1::Block&)> apply;
  const char* words;
};

class Damaged : public testing::TestWithParam<Damage> {};

TEST_P(Damaged, IsRefusedAndNamed) {
  v1::Block block = GoodBlock();
  GetParam().apply(block);
  auto columns = Check(block);
  EXPECT_EQ(columns.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(columns.status().message()), HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    Blocks, Damaged,
    testing::Values(
        Damage{"Count", [](v1::Block& b) { b.add_count(1); }, "column count has 2 values, 1 are needed"},
        Damage{"OrdinalDelta", [](v1::Block& b) { b.clear_ordinal_delta(); }, "column ordinal_delta has 0 values"},
        Damage{"FragmentFlags", [](v1::Block& b) { b.clear_fragment_flags(); }, "column fragment_flags"},
        Damage{"Stack", [](v1::Block& b) { b.clear_stack(); }, "column stack"},
        Damage{"Parent", [](v1::Block& b) { b.clear_parent(); }, "column parent"},
        Damage{"Thread", [](v1::Block& b) { b.add_thread(1), b.add_thread(1); }, "column thread has 2 values"},
        Damage{"Shape", [](v1::Block& b) { b.mutable_shape()->RemoveLast(); }, "column shape has 1 values"},
        Damage{"LeafFlags", [](v1::Block& b) { b.add_leaf_flags(0); }, "column leaf_flags has 3 values"},
        Damage{"Edge", [](v1::Block& b) { b.add_edge(v1::EDGE_SAME); }, "column edge has 1 values"},
        Damage{"EdgeLeaf",
               [](v1::Block& b) {
                 for (int i = 0; i < b.leaf_flags_size(); ++i) b.add_edge(v1::EDGE_VIEW);
                 for (int i = 0; i < b.leaf_flags_size(); ++i) b.add_edge_distance(1);
               },
               "column edge_leaf has 0 values"},
        Damage{"FewLeafFlags", [](v1::Block& b) { b.clear_leaf_flags(); }, "column leaf_flags has 0 values"},
        Damage{"Narrow", [](v1::Block& b) { b.add_narrow(1); }, "column narrow has 6 values, 5 are needed"},
        Damage{"Wide", [](v1::Block& b) { b.add_wide(1); }, "column wide"},
        Damage{"Extremes", [](v1::Block& b) { b.clear_integer_extremes(); }, "column integer_extremes"},
        Damage{"Moments", [](v1::Block& b) { b.clear_integer_moments(); }, "column integer_moments"},
        Damage{"ZeroCount", [](v1::Block& b) { b.clear_zero_count(); }, "column zero_count"},
        Damage{"Crc32", [](v1::Block& b) { b.clear_crc32(); }, "column crc32"},
        Damage{"Xor64", [](v1::Block& b) { b.clear_xor64(); }, "column xor64"},
        Damage{"Payload", [](v1::Block& b) { b.clear_payload(); }, "column payload"},
        Damage{"Integers", [](v1::Block& b) { b.clear_integers(); }, "column integers"},
        Damage{"Floats", [](v1::Block& b) { b.add_floats(1); }, "column floats"},
        Damage{"Booleans", [](v1::Block& b) { b.clear_booleans(); }, "column booleans"},
        Damage{"Strings", [](v1::Block& b) { b.mutable_strings()->RemoveLast(); }, "column strings has 1 values"},
        Damage{"StructureIndex", [](v1::Block& b) { b.set_structure(0, 1); }, "column structure points at 1"},
        Damage{"StackIndex", [](v1::Block& b) { b.set_stack(0, 2); }, "column stack points at 1"},
        Damage{"ParentIndex", [](v1::Block& b) { b.set_parent(0, 0xffffffffu); }, "column parent points at"},
        Damage{"ShapeIndex", [](v1::Block& b) { b.set_shape(1, 1); }, "column shape points at 1"},
        Damage{"NonFiniteIndex", [](v1::Block& b) { b.mutable_non_finite(0)->set_leaf(2); },
               "column non_finite points at 2"},
        Damage{"NegativeDim", [](v1::Block& b) { b.mutable_shapes(0)->set_dims(0, -2); }, "dimension -2"},
        Damage{"HashLength", [](v1::Block& b) { b.mutable_payload(0)->set_hash("short"); }, "payload hash has 5 bytes"},
        Damage{"NegativeOrdinal", [](v1::Block& b) { b.set_ordinal_delta(0, -1); }, "negative ordinal"},
        Damage{"OrdinalOverflow",
               [](v1::Block& b) {
                 v1::Block copy = b;
                 b.MergeFrom(copy);
                 b.set_ordinal_delta(0, std::numeric_limits<int64_t>::max());
               },
               "negative ordinal"},
        Damage{"UnknownStructure", [](v1::Block& b) { b.set_structures(0, 5); }, "structure 0000000000000005"},
        Damage{"UnknownStack", [](v1::Block& b) { b.set_stacks(0, 5); }, "stack 0000000000000005"}),
    [](const testing::TestParamInfo<Damage>& info) { return info.param.name; });

TEST(Summarize, RefusesWhatIsNoStructure) {
  v1::Structure nameless = TensorStructure("", v1::RECORD_API, {"output"});
  EXPECT_THAT(std::string(Summarize(nameless).status().message()), HasSubstr("no name"));
  v1::Structure kindless = TensorStructure("a", v1::RECORD_KIND_UNSPECIFIED, {"output"});
  EXPECT_THAT(std::string(Summarize(kindless).status().message()), HasSubstr("kind 0"));
  v1::Structure list;
  list.set_name("a");
  list.set_kind(v1::RECORD_API);
  list.mutable_fields()->mutable_list();
  EXPECT_THAT(std::string(Summarize(list).status().message()), HasSubstr("not a dict"));
  v1::Structure empty_node = TensorStructure("a", v1::RECORD_API, {"output"});
  empty_node.mutable_fields()->mutable_dict()->mutable_entries(0)->mutable_value()->Clear();
  EXPECT_THAT(std::string(Summarize(empty_node).status().message()), HasSubstr("neither list"));
}

TEST(FullName, PutsTheCountWhereItsFamilyHasIt) {
  EXPECT_EQ(FullName("Functional.linear", v1::RECORD_API, v1::DIRECTION_BACKWARD, 2), "Functional.linear.2.backward");
  EXPECT_EQ(FullName("Module.n.N", v1::RECORD_MODULE, v1::DIRECTION_FORWARD, 2), "Module.n.N.forward.2");
  EXPECT_EQ(FullName("Module.n.N", v1::RECORD_PARAMETERS_GRAD, v1::DIRECTION_BACKWARD, 2),
            "Module.n.N.parameters_grad.2");
  EXPECT_EQ(FullName("z", v1::RECORD_DEBUG, v1::DIRECTION_FORWARD, 2), "z.2.debug");
}

}  // namespace
}  // namespace msprobe::server
