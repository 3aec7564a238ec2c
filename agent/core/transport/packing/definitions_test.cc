#include "agent/core/transport/packing/definitions.h"

#include "agent/core/content_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

class DefinitionsTest : public ::testing::Test {
 protected:
  uint64_t AddStructure(StructureId id) {
    return definitions_.AddStructure(*dictionary_.structure(id), &batch_, &bytes_);
  }
  StructureId Define(const std::string& name) {
    Structure structure;
    structure.name = name;
    structure.fields.kind = NodeKind::kDict;
    return dictionary_.DefineStructure(structure);
  }
  StackId DefineStack(const std::string& source) {
    const Frame frame{.path = "model.py", .line = 3, .function = "forward", .source = source};
    return dictionary_.DefineStack(std::span(&frame, 1));
  }

  Dictionary dictionary_;
  Definitions definitions_{&dictionary_};
  v1::Batch batch_;
  size_t bytes_ = 0;
};

TEST_F(DefinitionsTest, AStructureIsDefinedByTheFirstBatchThatUsesIt) {
  const StructureId structure = Define("a");
  const uint64_t hash = AddStructure(structure);
  ASSERT_EQ(batch_.definitions_size(), 1);
  EXPECT_EQ(batch_.definitions(0).id(), hash);
  EXPECT_EQ(DefinitionHash(batch_.definitions(0).structure()), hash);
  EXPECT_EQ(bytes_, batch_.definitions(0).ByteSizeLong());
  batch_.Clear();
  EXPECT_EQ(AddStructure(structure), hash);
  EXPECT_EQ(batch_.definitions_size(), 0);
}

TEST_F(DefinitionsTest, AStackIsDefinedOnceWithItsSource) {
  const StackId stack = DefineStack("return x");
  const uint64_t hash = definitions_.AddStack(stack, &batch_, &bytes_);
  ASSERT_EQ(batch_.definitions_size(), 1);
  v1::Stack content;
  ASSERT_TRUE(content.ParseFromString(batch_.definitions(0).stack()));
  EXPECT_EQ(content.frames(0).source(), "return x");
  EXPECT_EQ(definitions_.AddStack(stack, &batch_, &bytes_), hash);
  EXPECT_EQ(batch_.definitions_size(), 1);
}

TEST_F(DefinitionsTest, AServerThatLostThemGetsAllOfTheSession) {
  const StructureId sent = Define("sent");
  AddStructure(sent);
  const StructureId unsent = Define("unsent");
  DefineStack("return x");
  v1::Batch whole;
  definitions_.CopyAll(&whole);
  EXPECT_EQ(whole.definitions_size(), 3);
  v1::Batch again;
  definitions_.CopyAll(&again);
  EXPECT_EQ(again.SerializeAsString(), whole.SerializeAsString());
  batch_.Clear();
  AddStructure(unsent);
  EXPECT_EQ(batch_.definitions_size(), 0) << "it counts as sent";
}

}  // namespace
}  // namespace msprobe::core
