#include "agent/core/transport/packing/block_writer.h"

#include "agent/core/queue/leaf_flags.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::ElementsAre;

class BlockWriterTest : public ::testing::Test {
 protected:
  BlockWriterTest() {
    Structure structure;
    structure.name = "t";
    structure.fields.kind = NodeKind::kDict;
    Node tensor;
    tensor.kind = NodeKind::kTensor;
    tensor.key = "0";
    structure.fields.children.push_back(tensor);
    structure_ = dictionary_.DefineStructure(structure);
  }

  size_t Add(uint64_t ordinal, std::vector<int64_t> shape = {2}) {
    Fragment fragment;
    fragment.structure = structure_;
    fragment.ordinal = ordinal;
    std::vector<Leaf> leaves(1);
    leaves[0].shape = shape;
    return writer_.Add(fragment, leaves, &announced_);
  }

  Dictionary dictionary_;
  Definitions definitions_{&dictionary_};
  BlockWriter writer_{&dictionary_, &definitions_};
  v1::Batch batch_;
  std::vector<AnnouncedPayload> announced_;
  StructureId structure_ = 0;
};

TEST_F(BlockWriterTest, ABlockIsOfOnePass) {
  EXPECT_FALSE(writer_.IsOpen(1, 2));
  writer_.Open(&batch_, 1, 2);
  EXPECT_TRUE(writer_.IsOpen(1, 2));
  EXPECT_FALSE(writer_.IsOpen(1, 3));
  EXPECT_FALSE(writer_.IsOpen(2, 2));
  writer_.Close();
  EXPECT_FALSE(writer_.IsOpen(1, 2));
  EXPECT_EQ(batch_.items(0).block().step(), 1u);
  EXPECT_EQ(batch_.items(0).block().token(), 2u);
}

TEST_F(BlockWriterTest, OrdinalsAreDifferencesAndTablesHoldEachValueOnce) {
  writer_.Open(&batch_, 0, 0);
  Add(7);
  Add(9);
  Add(10, {3});
  const v1::Block& block = batch_.items(0).block();
  EXPECT_THAT(block.ordinal_delta(), ElementsAre(7, 2, 1));
  EXPECT_EQ(block.structures_size(), 1);
  EXPECT_THAT(block.shape(), ElementsAre(0, 0, 1));
  EXPECT_EQ(batch_.definitions_size(), 1);
  writer_.Open(&batch_, 0, 1);
  Add(11);
  EXPECT_THAT(batch_.items(1).block().ordinal_delta(), ElementsAre(11));
  EXPECT_EQ(batch_.items(1).block().structures_size(), 1);
  EXPECT_EQ(batch_.definitions_size(), 1);
}

TEST_F(BlockWriterTest, TheFirstUseOfAStructureCostsItsDefinition) {
  writer_.Open(&batch_, 0, 0);
  const size_t first = Add(0);
  EXPECT_GT(first, Add(1) + batch_.definitions(0).ByteSizeLong());
}

}  // namespace
}  // namespace msprobe::core
