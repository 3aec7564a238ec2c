#include "server/format/storage/record_assembler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "server/format/storage/fragment_decoder.h"
#include "server/format/storage/scripted_block.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;

class RecordAssemblerTest : public testing::Test {
 protected:
  v1::Structure Define(const std::string& name, v1::RecordKind kind, const std::vector<std::string>& fields,
                       v1::Direction direction = v1::DIRECTION_FORWARD) {
    v1::Structure structure = TensorStructure(name, kind, fields, direction);
    structures_[IdOf(structure)] = structure;
    return structure;
  }

  std::vector<v1::Record> Assemble(const std::vector<v1::Block>& blocks, bool edges = true) {
    v1::Rank rank;
    rank.set_kind(v1::Rank::RANK);
    RecordAssembler assembler(3, rank, [this](uint64_t id) -> absl::StatusOr<SharedStructure> {
      if (structures_.contains(id)) return DecodeStructure(structures_[id].SerializeAsString());
      return absl::NotFoundError("no structure");
    });
    for (const v1::Block& block : blocks) EXPECT_TRUE(assembler.Add(std::make_shared<v1::Block>(block)).ok());
    std::vector<v1::Record> records;
    const auto keep = [&](const v1::Record& record, uint64_t stack) {
      records.push_back(record);
      stacks_.push_back(stack);
      return absl::OkStatus();
    };
    EXPECT_TRUE((edges ? assembler.ForEach(keep) : assembler.ForEachWithoutEdges(keep)).ok());
    return records;
  }

  static std::vector<std::string> Names(const std::vector<v1::Record>& records) {
    std::vector<std::string> names;
    for (const v1::Record& record : records) names.push_back(record.full_name());
    return names;
  }
  static std::vector<std::string> Fields(const v1::Record& record) {
    std::vector<std::string> keys;
    for (const auto& entry : record.fields().dict().entries()) keys.push_back(entry.key());
    return keys;
  }
  static double MaxOf(const v1::Record& record, int field) {
    return record.fields().dict().entries(field).value().list().items(0).tensor().max().real();
  }

  std::map<uint64_t, v1::Structure> structures_;
  std::vector<uint64_t> stacks_;
};

TEST_F(RecordAssemblerTest, JoinsEnterAndExitAcrossBlocks) {
  const auto enter = Define("Torch.add", v1::RECORD_API, {"input_args", "input_kwargs"});
  const auto exit = Define("Torch.add", v1::RECORD_API, {"output"});
  const auto records = Assemble({BlockScript(3, 1)
                                     .Fragment(enter, 0, 4, v1::FRAGMENT_ENTER, {1, 2})
                                     .Parent("Module.a.A.forward.0")
                                     .Stack(9)
                                     .block(),
                                 BlockScript(3, 1).Fragment(exit, 0, 7, v1::FRAGMENT_EXIT, {3}).block()});
  ASSERT_EQ(records.size(), 1u);
  const v1::Record& record = records[0];
  EXPECT_EQ(record.full_name(), "Torch.add.0.forward");
  EXPECT_THAT(Fields(record), ElementsAre("input_args", "input_kwargs", "output"));
  EXPECT_EQ(MaxOf(record, 0), 1);
  EXPECT_EQ(MaxOf(record, 2), 3);
  EXPECT_EQ(record.ordinal(), 4u);
  EXPECT_EQ(record.step(), 3u);
  EXPECT_EQ(record.token(), 1u);
  EXPECT_EQ(record.flags(), static_cast<uint32_t>(v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT));
  EXPECT_EQ(record.parent(), "Module.a.A.forward.0");
  EXPECT_THAT(stacks_, ElementsAre(9));
}

TEST_F(RecordAssemblerTest, EnterFieldsComeFirstWhateverTheOrderOfArrival) {
  const auto enter = Define("Torch.add", v1::RECORD_API, {"input_args"});
  const auto exit = Define("Torch.add", v1::RECORD_API, {"output"});
  const auto records = Assemble({BlockScript(3, 0)
                                     .Fragment(exit, 0, 9, v1::FRAGMENT_EXIT, {3})
                                     .Fragment(enter, 0, 5, v1::FRAGMENT_ENTER, {1})
                                     .block()});
  ASSERT_EQ(records.size(), 1u);
  EXPECT_THAT(Fields(records[0]), ElementsAre("input_args", "output"));
  EXPECT_EQ(records[0].ordinal(), 5u);
}

TEST_F(RecordAssemblerTest, ModulesStandBehindTheirChildrenAndApisAtTheirEntry) {
  const auto module = Define("Module.a.A", v1::RECORD_MODULE, {"input_args"});
  const auto module_exit = Define("Module.a.A", v1::RECORD_MODULE, {"output"});
  const auto api = Define("Torch.add", v1::RECORD_API, {"input_args"});
  const auto api_exit = Define("Torch.add", v1::RECORD_API, {"output"});
  const auto records = Assemble({BlockScript(3, 0)
                                     .Fragment(module, 0, 1, v1::FRAGMENT_ENTER, {1})
                                     .Fragment(api, 0, 2, v1::FRAGMENT_ENTER, {1})
                                     .Fragment(api_exit, 0, 3, v1::FRAGMENT_EXIT, {1})
                                     .Fragment(api, 1, 4, v1::FRAGMENT_ENTER, {1})
                                     .Fragment(module_exit, 0, 5, v1::FRAGMENT_EXIT, {1})
                                     .block()});
  EXPECT_THAT(Names(records), ElementsAre("Torch.add.0.forward", "Torch.add.1.forward", "Module.a.A.forward.0"));
  EXPECT_EQ(records[1].flags() & v1::FRAGMENT_EXIT, 0u);
}

TEST_F(RecordAssemblerTest, ModuleWithoutExitStaysAtItsEntry) {
  const auto module = Define("Module.a.A", v1::RECORD_MODULE, {"input_args"});
  const auto api = Define("Torch.add", v1::RECORD_API, {"input_args"});
  EXPECT_THAT(Names(Assemble({BlockScript(3, 0)
                                  .Fragment(module, 0, 1, v1::FRAGMENT_ENTER, {1})
                                  .Fragment(api, 0, 2, v1::FRAGMENT_ENTER, {1})
                                  .block()})),
              ElementsAre("Module.a.A.forward.0", "Torch.add.0.forward"));
}

TEST_F(RecordAssemblerTest, UpdatesMergeAndTheLastOneDecidesThePlace) {
  const auto weight = Define("Module.a.A", v1::RECORD_PARAMETERS_GRAD, {"weight"});
  const auto bias = Define("Module.a.A", v1::RECORD_PARAMETERS_GRAD, {"bias"});
  const auto api = Define("Torch.add", v1::RECORD_API, {"input_args"});
  const auto records = Assemble({BlockScript(3, 0)
                                     .Fragment(weight, 0, 1, v1::FRAGMENT_UPDATE, {1})
                                     .Fragment(api, 0, 2, v1::FRAGMENT_ENTER, {1})
                                     .Fragment(bias, 0, 3, v1::FRAGMENT_UPDATE, {2})
                                     .Fragment(weight, 0, 4, v1::FRAGMENT_UPDATE, {5})
                                     .block()});
  EXPECT_THAT(Names(records), ElementsAre("Torch.add.0.forward", "Module.a.A.parameters_grad.0"));
  EXPECT_THAT(Fields(records[1]), ElementsAre("weight", "bias"));
  EXPECT_EQ(MaxOf(records[1], 0), 5) << "the later value of the same parameter stands";
}

TEST_F(RecordAssemblerTest, CountsAndDirectionsAreDifferentRecords) {
  const auto forward = Define("Torch.add", v1::RECORD_API, {"input_args"});
  const auto backward = Define("Torch.add", v1::RECORD_API, {"input"}, v1::DIRECTION_BACKWARD);
  EXPECT_THAT(Names(Assemble({BlockScript(3, 0)
                                  .Fragment(forward, 1, 1, v1::FRAGMENT_ENTER, {1})
                                  .Fragment(forward, 0, 2, v1::FRAGMENT_ENTER, {1})
                                  .Fragment(backward, 0, 3, v1::FRAGMENT_ENTER, {1})
                                  .block()})),
              ElementsAre("Torch.add.1.forward", "Torch.add.0.forward", "Torch.add.0.backward"));
}

TEST_F(RecordAssemblerTest, DamagedBlockIsDataLoss) {
  const auto structure = Define("Torch.add", v1::RECORD_API, {"input_args"});
  BlockScript script(3, 0);
  script.Fragment(structure, 0, 1, v1::FRAGMENT_ENTER, {1});
  script.block().clear_narrow();
  RecordAssembler assembler(3, {}, [&](uint64_t) { return DecodeStructure(structure.SerializeAsString()); });
  EXPECT_EQ(assembler.Add(std::make_shared<v1::Block>(script.block())).code(), absl::StatusCode::kDataLoss);
}

TEST(DecodeFields, GivesNumbersTheirKind) {
  struct Case {
    v1::DType dtype;
    int64_t stored;
    v1::TensorLeaf::Number expected;
    std::string name = "";
  };
  v1::TensorLeaf::Number integer, large, boolean;
  integer.set_integer(-7);
  large.set_unsigned_integer(0xffffffffffffffffull);
  boolean.set_boolean(true);
  for (const Case& c : std::vector<Case>{{v1::DTYPE_INT64, -7, integer},
                                         {v1::DTYPE_UINT64, -1, large},
                                         {v1::DTYPE_BOOL, 1, boolean},
                                         {v1::DTYPE_OTHER, -7, integer, "Int64"},
                                         {v1::DTYPE_OTHER, -1, large, "UInt64"}}) {
    v1::Structure structure = TensorStructure("a", v1::RECORD_API, {"output"});
    auto& slot = *structure.mutable_fields()
                      ->mutable_dict()
                      ->mutable_entries(0)
                      ->mutable_value()
                      ->mutable_list()
                      ->mutable_items(0)
                      ->mutable_tensor();
    slot.set_dtype(c.dtype);
    slot.set_dtype_name(c.name);
    v1::Block block;
    block.add_shapes()->add_dims(4);
    block.add_shape(0);
    block.add_leaf_flags(v1::LEAF_STATISTICS | v1::LEAF_INTEGER);
    block.add_integer_extremes(c.stored);
    block.add_integer_extremes(c.stored);
    for (int i = 0; i < 3; ++i) block.add_integer_moments(i);
    block.add_zero_count(6);
    v1::Value value;
    DecodeFields(
        structure, block, {}, {}, [](uint64_t, uint32_t, v1::Edge&) {}, value);
    const v1::TensorLeaf& leaf = value.dict().entries(0).value().list().items(0).tensor();
    EXPECT_EQ(leaf.max().ShortDebugString(), c.expected.ShortDebugString());
    EXPECT_EQ(leaf.zero_count(), 6u);
    EXPECT_EQ(leaf.variance(), 2);
    EXPECT_EQ(leaf.shape(0), 4);
  }
}

TEST(DecodeFields, NonFiniteLeafHasItsCountsAndFiniteNumbers) {
  const v1::Structure structure = TensorStructure("a", v1::RECORD_API, {"input_args", "output"});
  BlockScript script(0, 0);
  script.Fragment(structure, 0, 0, v1::FRAGMENT_ENTER, {1, 2});
  v1::NonFinite* entry = script.block().add_non_finite();
  entry->set_leaf(1);
  entry->set_nan_count(3);
  entry->set_finite_max(0);
  v1::Value value;
  DecodeFields(
      structure, script.block(), {}, {{1, 0}}, [](uint64_t, uint32_t, v1::Edge&) {}, value);
  EXPECT_EQ(value.dict().entries(0).value().list().items(0).tensor().nan_count(), 0u);
  const v1::TensorLeaf& leaf = value.dict().entries(1).value().list().items(0).tensor();
  EXPECT_EQ(leaf.nan_count(), 3u);
  EXPECT_TRUE(leaf.has_finite_max());
  EXPECT_FALSE(leaf.has_finite_min());
}

// relu, in a module that ends later, then add: the second input is a view of what the module gave out.
TEST_F(RecordAssemblerTest, NamesTheProducersOfInputs) {
  const v1::Structure entered = Define("Torch.add", v1::RECORD_API, {"input_args", "input_kwargs"});
  const v1::Structure left = Define("Torch.add", v1::RECORD_API, {"output"});
  const v1::Structure relu = Define("Torch.relu", v1::RECORD_API, {"output"});
  const v1::Structure module_in = Define("Module.m.M", v1::RECORD_MODULE, {"input_args"});
  const v1::Structure module_out = Define("Module.m.M", v1::RECORD_MODULE, {"output", "parameters"});
  BlockScript script(3, 0);
  script.Fragment(module_in, 0, 1, v1::FRAGMENT_ENTER, {1})
      .Fragment(relu, 0, 2, v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT, {2})
      .Fragment(module_out, 0, 3, v1::FRAGMENT_EXIT, {2, 9})
      .Fragment(entered, 0, 4, v1::FRAGMENT_ENTER, {2, 2})
      .Fragment(left, 0, 4, v1::FRAGMENT_EXIT, {5})
      .Fragment(entered, 1, 5, v1::FRAGMENT_ENTER, {5, 5});
  script.Edge(0, v1::EDGE_OUTSIDE)
      .Edge(4, v1::EDGE_SAME, 2)
      .Edge(5, v1::EDGE_VIEW, 1, 1)
      .Edge(7, v1::EDGE_CHANGED, 1)
      .Edge(8, v1::EDGE_SAME, 77);
  std::vector<v1::Record> records = Assemble({script.block()});
  const auto edge = [&](size_t record, int field) {
    const v1::TensorLeaf& leaf = records[record].fields().dict().entries(field).value().list().items(0).tensor();
    return leaf.edge().ShortDebugString();
  };
  ASSERT_THAT(Names(records), ElementsAre("Torch.relu.0.forward", "Module.m.M.forward.0", "Torch.add.0.forward",
                                          "Torch.add.1.forward"));
  EXPECT_EQ(edge(0, 0), "");
  EXPECT_EQ(edge(1, 0), "kind: EDGE_OUTSIDE");
  EXPECT_EQ(edge(2, 0), R"(kind: EDGE_SAME record: "Torch.relu.0.forward" tensor: "Torch.relu.0.forward.output.0")");
  EXPECT_EQ(edge(2, 1),
            R"(kind: EDGE_VIEW record: "Module.m.M.forward.0" tensor: "Module.m.M.forward.0.parameters.0")");
  EXPECT_EQ(edge(3, 0), R"(kind: EDGE_CHANGED record: "Torch.add.0.forward" tensor: "Torch.add.0.forward.output.0")");
  EXPECT_EQ(edge(3, 1), "") << "a producer that is not there";

  const std::vector<v1::Record> without = Assemble({script.block()}, false);
  ASSERT_EQ(without.size(), records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    for (v1::Value::Entry& entry : *records[i].mutable_fields()->mutable_dict()->mutable_entries()) {
      v1::TensorLeaf& leaf = *entry.mutable_value()->mutable_list()->mutable_items(0)->mutable_tensor();
      if (!leaf.edge().record().empty()) leaf.clear_edge();
    }
    EXPECT_EQ(without[i].DebugString(), records[i].DebugString());
  }
}

TEST(DTypeName, AsTorchAndNumpyPrintIt) {
  v1::Node::TensorSlot slot;
  slot.set_type("torch.Tensor");
  slot.set_dtype(v1::DTYPE_FLOAT8_E4M3FN);
  EXPECT_EQ(DTypeName(slot), "torch.float8_e4m3fn");
  slot.set_type("numpy.ndarray");
  slot.set_dtype(v1::DTYPE_FLOAT32);
  EXPECT_EQ(DTypeName(slot), "float32");
  slot.set_dtype(v1::DTYPE_OTHER);
  slot.set_dtype_name("<U3");
  EXPECT_EQ(DTypeName(slot), "<U3");
}

TEST(MergeValue, FillsWhatWasNull) {
  v1::Value target, addition;
  target.mutable_list()->add_items()->set_none(true);
  target.mutable_list()->add_items()->set_integer(1);
  addition.mutable_list()->add_items()->set_integer(5);
  addition.mutable_list()->add_items()->set_none(true);
  addition.mutable_list()->add_items()->set_text("new");
  MergeValue(target, std::move(addition));
  EXPECT_EQ(target.list().items(0).integer(), 5);
  EXPECT_EQ(target.list().items(1).integer(), 1) << "a later null takes nothing away";
  EXPECT_EQ(target.list().items(2).text(), "new");
}

}  // namespace
}  // namespace msprobe::server
